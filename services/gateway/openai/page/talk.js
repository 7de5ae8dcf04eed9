// SPDX-License-Identifier: Apache-2.0
'use strict';
// Shows the messages of one conversation. Knows nothing of how answers come.

class Talk {
  // `actions`: resend(at), edit(at, text), continueFrom(at), result(call, text).
  constructor(root, actions) {
    this.root = root;
    this.actions = actions;
  }

  get atEnd() {
    const scroller = this.root.parentElement;
    return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 60;
  }

  scrollToEnd() {
    const scroller = this.root.parentElement;
    scroller.scrollTop = scroller.scrollHeight;
  }

  // Shows all of it; `running` is the message that still comes, or null.
  show(conversation, running) {
    this.conversation = conversation;
    const {messages} = conversation;
    this.root.replaceChildren(...messages.map((message, at) => this.elementOf(message, at, message === running)));
    byId('welcome').hidden = messages.length > 0;
    this.scrollToEnd();
  }

  // Shows the last message anew, as it comes.
  update(message, running) {
    const follow = this.atEnd;
    const at = this.conversation.messages.indexOf(message);
    const old = this.root.children[at];
    const thoughts = old?.querySelector('details.thoughts');
    const element = this.elementOf(message, at, running);
    // What a person has opened or closed stays so.
    const shown = element.querySelector('details.thoughts');
    if (shown && thoughts?.dataset.touched) {
      shown.open = thoughts.open;
      shown.dataset.touched = '1';
    }
    if (old) old.replaceWith(element);
    else this.root.append(element);
    if (follow) this.scrollToEnd();
  }

  elementOf(message, at, running) {
    if (message.role === 'tool') return this.resultOf(message);
    return message.role === 'user' ? this.questionOf(message, at) : this.answerOf(message, at, running);
  }

  questionOf(message, at) {
    const text = h('div', {class: 'text plain'}, message.content);
    const element = h(
      'article',
      {class: 'message user', 'aria-label': 'You'},
      text,
      h(
        'div',
        {class: 'actions'},
        copyButton(() => message.content),
        iconButton('i-edit', 'Edit and send again', () => this.edit(element, text, message, at)),
        iconButton('i-retry', 'Send again', () => this.actions.resend(at)),
      ),
    );
    return element;
  }

  edit(element, text, message, at) {
    const area = h('textarea', {value: message.content, 'aria-label': 'Edited message'});
    const close = () => form.replaceWith(text);
    const send = () => this.actions.edit(at, area.value);
    const form = h(
      'form',
      {
        class: 'edit',
        on: {
          submit: event => {
            event.preventDefault();
            send();
          },
        },
      },
      area,
      h(
        'div',
        {class: 'row end'},
        h('button', {type: 'button', on: {click: close}}, 'Cancel'),
        h('button', {class: 'go'}, 'Send'),
      ),
    );
    area.addEventListener('input', () => fitHeight(area));
    area.addEventListener('keydown', event => {
      if (event.key === 'Escape') {
        event.stopPropagation();
        close();
      }
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        send();
      }
    });
    text.replaceWith(form);
    fitHeight(area);
    area.focus();
  }

  startEdit(at) {
    this.root.children[at]?.querySelector('[title^="Edit"]')?.click();
  }

  answerOf(message, at, running) {
    const element = h('article', {class: 'message assistant' + (running ? ' running' : ''), 'aria-label': 'Answer'});
    if (message.reasoning) {
      const thinking = running && !message.content && !message.tool_calls;
      const details = h(
        'details',
        {class: 'thoughts', open: thinking},
        h(
          'summary',
          {
            on: {
              click: () => {
                details.dataset.touched = '1';
              },
            },
          },
          thinking ? 'Thinking …' : 'Thoughts',
        ),
        h('div', {class: 'text plain'}, message.reasoning),
      );
      element.append(details);
    }
    if (message.content) {
      element.append(
        h(
          'div',
          {class: 'text'},
          ...(message.plain ? [h('p', {class: 'plain'}, message.content)] : markdown(message.content)),
        ),
      );
    }
    for (const call of message.tool_calls || []) element.append(this.callOf(call, running));
    if (running && !message.content && !message.reasoning && !message.tool_calls) {
      element.append(
        h('div', {class: 'dots', role: 'status', 'aria-label': 'Waiting for the answer'}, h('i'), h('i'), h('i')),
      );
    }
    if (message.error) element.append(h('p', {class: 'error', role: 'alert'}, message.error));
    if (!running) {
      const last = at === this.conversation.messages.findLastIndex(other => other.role === 'assistant');
      element.append(
        h(
          'div',
          {class: 'actions'},
          h('span', {class: 'stats'}, statsText(message.stats || {})),
          message.content ? copyButton(() => message.content) : null,
          last ? iconButton('i-retry', 'Answer again', () => this.actions.again(at)) : null,
        ),
      );
    }
    return element;
  }

  callOf(call, running) {
    let shown = call.function.arguments;
    try {
      shown = JSON.stringify(JSON.parse(shown), null, 2);
    } catch {
      // It is still coming, or the model has made a mistake.
    }
    const card = h(
      'section',
      {class: 'call', 'aria-label': 'Call of ' + call.function.name},
      h('div', {class: 'code-bar'}, h('span', {}, icon('i-tool'), ' ', h('b', {}, call.function.name))),
      h('pre', {}, h('code', {}, shown)),
    );
    if (!running && openCalls(this.conversation.messages).includes(call)) {
      const area = h('textarea', {
        rows: 1,
        placeholder: 'Result of ' + call.function.name,
        'aria-label': 'Result of ' + call.function.name,
      });
      const send = () => this.actions.result(call, area.value);
      area.addEventListener('input', () => fitHeight(area));
      area.addEventListener('keydown', event => {
        if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
          event.preventDefault();
          send();
        }
      });
      card.append(
        h(
          'form',
          {
            class: 'row',
            on: {
              submit: event => {
                event.preventDefault();
                send();
              },
            },
          },
          area,
          h('button', {class: 'go'}, 'Send result'),
        ),
      );
    }
    return card;
  }

  resultOf(message) {
    return h(
      'article',
      {class: 'message tool', 'aria-label': 'Result of ' + message.name},
      h(
        'details',
        {open: message.content.length < 400},
        h(
          'summary',
          {},
          icon('i-tool'),
          ' ',
          h('b', {}, message.name),
          message.by === 'page' ? ' answered by the page' : ' answered by you',
        ),
        h('pre', {}, message.content),
      ),
    );
  }
}

function statsText(stats) {
  const parts = [];
  if (stats.prompt !== undefined) {
    parts.push(
      `${stats.prompt} prompt` + (stats.cached ? ` (${stats.cached} cached)` : ''),
      `${stats.generated} generated`,
    );
  }
  if (stats.first !== undefined) parts.push(`first after ${stats.first.toFixed(2)} s`);
  if (stats.generated > 1 && stats.seconds > stats.first) {
    parts.push(`${((stats.generated - 1) / (stats.seconds - stats.first)).toFixed(1)} tokens/s`);
  }
  if (stats.finish && stats.finish !== 'stop') {
    parts.push(
      {length: 'cut by the limit of tokens', tool_calls: 'calls', you: 'stopped by you'}[stats.finish] || stats.finish,
    );
  }
  return parts.join(' · ');
}
