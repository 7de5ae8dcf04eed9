// SPDX-License-Identifier: Apache-2.0
'use strict';
// Puts the parts of the page together: conversations, the answer under way, panels, themes and keys.

class App {
  constructor() {
    this.store = new Store();
    this.api = new Api(() => byId('key').value);
    this.runs = new Map(); // conversation -> {controller, message}
    this.own = new Set(); // ids of this page's requests as steps have them
    this.settings = new SettingsPanel(this.store, settings => this.keepSettings(settings));
    this.talk = new Talk(byId('talk'), {
      resend: at => this.resend(at),
      edit: (at, text) => this.resend(at, text),
      again: at => this.again(at),
      result: (call, text) => this.giveResult(call, text),
    });
    this.live = new LivePanel(this.api, id => this.own.has(id.split('-')[0]));
    this.live.onFleet = error => this.onFleet(error);
    this.store.onFull = () => this.tell('the browser has no room for more conversations: delete some');
    this.conversation = this.store.conversations[0] || this.store.create();
    this.listen();
    this.setTheme(this.store.look.theme);
    this.setPanel(this.store.look.panel && innerWidth > 900 ? this.store.look.panel : '');
    this.showConversation();
  }

  // ---- Conversations.

  showConversation() {
    this.settings.show(this.conversation.settings);
    const run = this.runs.get(this.conversation);
    this.talk.show(this.conversation, run ? run.message : null);
    this.showList();
    this.showRunning();
  }

  open(conversation) {
    this.conversation = conversation;
    this.showConversation();
    this.setMenu(false);
  }

  create() {
    this.open(this.conversation.messages.length ? this.store.create() : this.conversation);
    byId('prompt').focus();
  }

  remove(conversation) {
    this.runs.get(conversation)?.controller.abort();
    this.store.remove(conversation);
    if (conversation === this.conversation) this.conversation = this.store.conversations[0] || this.store.create();
    this.showConversation();
  }

  showList() {
    const wanted = byId('search').value.trim().toLowerCase();
    const has = conversation =>
      !wanted ||
      titleOf(conversation).toLowerCase().includes(wanted) ||
      conversation.messages.some(message => (message.content || '').toLowerCase().includes(wanted));
    byId('list').replaceChildren(
      ...this.store.conversations.filter(has).map(conversation => {
        const current = conversation === this.conversation;
        return h(
          'li',
          {class: current ? 'chosen' : ''},
          h(
            'button',
            {
              type: 'button',
              class: 'title',
              'aria-current': current ? 'true' : null,
              on: {click: () => this.open(conversation)},
            },
            this.runs.has(conversation) ? h('span', {class: 'pulse', title: 'an answer comes'}) : null,
            titleOf(conversation),
          ),
          iconButton('i-delete', 'Delete ' + titleOf(conversation), () => this.remove(conversation)),
        );
      }),
    );
    byId('no-list').hidden = byId('list').children.length > 0;
    byId('remove-all').hidden = !this.store.conversations.length;
  }

  keepSettings(settings) {
    Object.assign(this.store.settings, settings);
    this.store.save();
  }

  // ---- Sending.

  send() {
    const text = byId('prompt').value;
    if (!text.trim() || this.runs.has(this.conversation)) return;
    const [call] = openCalls(this.conversation.messages);
    if (
      this.ask(() => {
        if (call) this.addResult(call, text, 'you');
        else this.conversation.messages.push({role: 'user', content: text});
      })
    ) {
      byId('prompt').value = '';
      fitHeight(byId('prompt'));
    }
  }

  resend(at, text) {
    if (this.runs.has(this.conversation)) return;
    const {messages} = this.conversation;
    this.ask(() => {
      messages.splice(at + 1);
      if (text !== undefined) messages[at].content = text;
    });
  }

  again(at) {
    if (!this.runs.has(this.conversation)) this.ask(() => this.conversation.messages.splice(at));
  }

  addResult(call, content, by) {
    this.conversation.messages.push({role: 'tool', tool_call_id: call.id, name: call.function.name, content, by});
  }

  giveResult(call, text) {
    if (!this.runs.has(this.conversation)) this.ask(() => this.addResult(call, text, 'you'));
  }

  // Changes the conversation and, unless calls still wait for results, asks for the next answer. Changes nothing where
  // a field is wrong.
  ask(change) {
    const {conversation} = this;
    try {
      requestOf(conversation);
    } catch (error) {
      this.tell(error.message);
      return false;
    }
    this.tell('');
    change();
    this.store.keep(conversation);
    if (openCalls(conversation.messages).length) this.showConversation();
    else this.run(conversation);
    return true;
  }

  async run(conversation) {
    const controller = new AbortController();
    const message = {role: 'assistant', content: '', plain: conversation.settings.mode !== 'chat'};
    const request = requestOf(conversation);
    conversation.messages.push(message);
    this.runs.set(conversation, {controller, message});
    this.showConversation();
    let due = false,
      saved = performance.now();
    const changed = () => {
      const id = message.request?.match(/req-([0-9a-f]{8})/);
      if (id) this.own.add(id[1]);
      if (performance.now() - saved > 1000) {
        saved = performance.now();
        this.store.save();
      }
      if (due) return;
      due = true;
      requestAnimationFrame(() => {
        due = false;
        if (conversation === this.conversation && this.runs.has(conversation)) this.talk.update(message, true);
      });
    };
    try {
      await this.api.answer(request, message, controller.signal, changed);
    } catch (error) {
      if (error.name === 'AbortError') message.stats.finish = 'you';
      else message.error = error.message;
      if (error.status === 401) this.askForKey();
    }
    // A call that was cut cannot be answered.
    if (message.stats?.finish !== 'tool_calls') delete message.tool_calls;
    this.runs.delete(conversation);
    this.store.save();
    this.answerCalls(conversation);
  }

  // Answers the calls that the page can, and goes on where that were all.
  answerCalls(conversation) {
    const calls = openCalls(conversation.messages);
    const results = calls.map(call => ({call, content: pageResult(call)})).filter(({content}) => content !== null);
    for (const {call, content} of results) {
      conversation.messages.push({role: 'tool', tool_call_id: call.id, name: call.function.name, content, by: 'page'});
    }
    if (results.length) this.store.save();
    if (results.length && results.length === calls.length && this.numTurns(conversation) < 20) this.run(conversation);
    else if (conversation === this.conversation) this.showConversation();
    else this.showList();
  }

  // Answers since the user spoke: a model that calls without end is stopped.
  numTurns({messages}) {
    return messages
      .slice(messages.findLastIndex(message => message.role === 'user'))
      .filter(message => message.role === 'assistant').length;
  }

  stop() {
    this.runs.get(this.conversation)?.controller.abort();
  }

  showRunning() {
    const running = this.runs.has(this.conversation);
    const [call] = openCalls(this.conversation.messages);
    byId('send').hidden = running;
    byId('stop').hidden = !running;
    byId('talk').setAttribute('aria-busy', String(running)); // It is read out when it is complete.
    byId('prompt').placeholder = call
      ? 'Result of ' + call.function.name
      : this.conversation.settings.mode === 'chat'
        ? 'Ask something'
        : 'Text to go on with';
  }

  tell(text) {
    byId('told').textContent = text;
  }

  // ---- Fleet and key.

  async onFleet(error) {
    const needsKey = error && error.status === 401;
    byId('connection').className = error ? 'off' : 'on';
    byId('connection').title = error ? error.message : `${this.live.fleet.length} worker(s)`;
    if (needsKey && !this.keyAsked) this.askForKey();
    if (error) return;
    this.keyAsked = false;
    try {
      const {data} = await this.api.json('v1/models');
      this.settings.showModels(data.map(model => model.id));
      const {model} = this.conversation.settings;
      if (model !== this.store.settings.model) this.keepSettings({model});
    } catch {
      // The next look at the fleet says what is wrong.
    }
  }

  askForKey() {
    this.keyAsked = true;
    this.setPanel('settings');
    byId('key-told').textContent = 'This gateway wants a key.';
    byId('key').focus();
  }

  // ---- Panels, themes, keys.

  setPanel(name) {
    this.panel = name;
    this.store.look.panel = name;
    this.store.save();
    for (const panel of ['batch', 'settings']) {
      byId(panel).hidden = panel !== name;
      byId('show-' + panel).setAttribute('aria-pressed', String(panel === name));
    }
    document.body.dataset.panel = name;
    this.live.setOpen(name === 'batch');
    if (name === 'batch') this.live.showFleet();
  }

  togglePanel(name) {
    this.setPanel(this.panel === name ? '' : name);
  }

  setMenu(open) {
    document.body.classList.toggle('menu', open);
    byId('menu').setAttribute('aria-expanded', String(open));
  }

  setTheme(theme) {
    this.store.look.theme = theme;
    this.store.save();
    document.documentElement.dataset.theme = theme;
    byId('theme').replaceChildren(icon({auto: 'i-auto', light: 'i-light', dark: 'i-dark'}[theme]));
    byId('theme').title = 'Colours: ' + {auto: 'as the system', light: 'light', dark: 'dark'}[theme];
    byId('theme').setAttribute('aria-label', byId('theme').title);
    this.live.draw();
    this.live.drawPlots();
  }

  nextTheme() {
    const themes = ['auto', 'light', 'dark'];
    this.setTheme(themes[(themes.indexOf(this.store.look.theme) + 1) % 3]);
  }

  showSnippet() {
    let request;
    try {
      request = requestOf(this.conversation);
    } catch (error) {
      this.tell(error.message);
      return;
    }
    const draft = byId('prompt').value;
    if (request.body.messages && (draft.trim() || !this.conversation.messages.length)) {
      request.body.messages.push({role: 'user', content: draft.trim() ? draft : 'Hello'});
    }
    const base = new URL('.', document.baseURI).href,
      hasKey = byId('key').value.trim() !== '';
    byId('curl').textContent = curlOf(request, base, hasKey);
    byId('python').textContent = pythonSnippetOf(request, base, hasKey);
    byId('code').showModal();
  }

  listen() {
    const click = (id, action) => byId(id).addEventListener('click', action);
    byId('composer').addEventListener('submit', event => {
      event.preventDefault();
      this.send();
    });
    byId('prompt').addEventListener('input', () => fitHeight(byId('prompt')));
    byId('prompt').addEventListener('keydown', event => {
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.send();
      }
      if (event.key === 'ArrowUp' && !byId('prompt').value) {
        const at = this.conversation.messages.findLastIndex(message => message.role === 'user');
        if (at >= 0 && !this.runs.has(this.conversation)) {
          event.preventDefault();
          this.talk.startEdit(at);
        }
      }
    });
    click('stop', () => this.stop());
    click('new', () => this.create());
    click('menu', () => this.setMenu(!document.body.classList.contains('menu')));
    click('shade', () => this.setMenu(false));
    click('theme', () => this.nextTheme());
    click('show-batch', () => this.togglePanel('batch'));
    click('show-settings', () => this.togglePanel('settings'));
    click('snippet', () => this.showSnippet());
    click('help', () => byId('keys').showModal());
    click('remove-all', () => byId('sure').showModal());
    byId('sure').addEventListener('close', () => {
      if (byId('sure').returnValue !== 'yes') return;
      for (const {controller} of this.runs.values()) controller.abort();
      this.store.removeAll();
      this.open(this.store.create());
    });
    for (const button of document.querySelectorAll('[data-close]')) click(button.id, () => this.setPanel(''));
    for (const name of ['curl', 'python']) byId(name + '-bar').append(copyButton(() => byId(name).textContent));
    byId('search').addEventListener('input', () => this.showList());
    byId('key').addEventListener('change', () => {
      byId('key-told').textContent = '';
      this.keyAsked = false;
      this.live.pollFleet();
      this.live.update(true);
    });
    byId('settings').addEventListener('input', () => this.showRunning());
    document.addEventListener('keydown', event => this.onKey(event));
    addEventListener('resize', () => {
      this.live.draw();
      if (this.panel === 'batch') this.live.drawPlots();
    });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.live.draw());
    addEventListener('storage', () => {
      this.store.takeOthers(new Set([this.conversation, ...this.runs.keys()]));
      this.showList();
    });
  }

  onKey(event) {
    if (document.querySelector('dialog[open]')) return;
    const typing = event.target.closest('input, textarea, select');
    if (event.key === 'Escape') {
      if (this.runs.has(this.conversation)) this.stop();
      else if (document.body.classList.contains('menu')) this.setMenu(false);
      else if (this.panel && innerWidth <= 900) this.setPanel('');
      else return;
      event.preventDefault();
      return;
    }
    const actions = {
      n: () => this.create(),
      b: () => this.togglePanel('batch'),
      s: () => this.togglePanel('settings'),
      t: () => this.nextTheme(),
      c: () => this.showSnippet(),
    };
    const plain = {'/': () => byId('prompt').focus(), '?': () => byId('keys').showModal()};
    // On some systems Alt with a letter types another character.
    const letter = event.code.startsWith('Key') ? event.code.slice(3).toLowerCase() : '';
    const action =
      event.altKey && !event.ctrlKey && !event.metaKey
        ? actions[letter]
        : !typing && !event.ctrlKey && !event.metaKey
          ? plain[event.key]
          : null;
    if (!action) return;
    event.preventDefault();
    action();
  }
}

const app = new App();
