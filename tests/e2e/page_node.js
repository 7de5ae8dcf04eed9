// SPDX-License-Identifier: Apache-2.0
// Runs the script of the gateway's page at PAGE_URL over a document that is just enough for it, and
// prints what a user would see: the model, an answer, a call, one that was cancelled, an error, the fleet.
'use strict';

const elements = new Map();

class Element {
  constructor(tag) {
    this.tag = tag;
    this.children = [];
    this.listeners = {};
    this.value = '';
    this.text = '';
    this.disabled = false;
  }
  get textContent() {
    return this.text + this.children.map(c => (typeof c === 'string' ? c : c.textContent)).join('');
  }
  set textContent(text) { this.text = text; this.children = []; }
  get options() { return this.children; }
  append(...children) { this.children.push(...children); }
  replaceChildren(...children) {
    this.children = children;
    if (this.tag === 'select' && children.length) this.value = children[0].value;
  }
  addEventListener(name, f) { this.listeners[name] = f; }
  fire(name) { return this.listeners[name]({preventDefault() {}}); }
}

async function until(condition, what) {
  for (const end = Date.now() + 60000; !condition();) {
    if (Date.now() > end) throw new Error(what);
    await new Promise(done => setTimeout(done, 10));
  }
}

async function main() {
  const base = process.env.PAGE_URL;
  const html = await (await fetch(base + '/')).text();
  for (const [, tag, id] of html.matchAll(/<(\w+) id="([\w-]+)"/g)) elements.set(id, new Element(tag));
  global.document = {
    hidden: false,
    getElementById: id => elements.get(id),
    createElement: tag => new Element(tag),
  };
  const fetchOf = global.fetch;
  global.fetch = (path, options) => fetchOf(base + path, options);
  const at = id => elements.get(id);
  const talk = kind => at('talk').children.filter(p => p.className === kind).map(p => p.textContent);
  const sent = () => until(() => !at('send').disabled, 'the answer does not end');
  const ask = (prompt, max) => {
    Object.assign(at('prompt'), {value: prompt});
    at('max').value = String(max);
    at('form').fire('submit');
  };
  at('kind').value = 'chat';
  at('temperature').value = '0';
  new Function(html.match(/<script>([^]*)<\/script>/)[1])();

  await until(() => at('model').children.length && at('fleet').children.length, 'no fleet');
  const result = {model: at('model').value, fleet: at('fleet').children[0].children.map(c => c.textContent)};
  ask(process.env.QUESTION, 20);
  await sent();
  result.answer = talk('assistant')[0];
  result.told = at('told').textContent;

  at('tools').value = '[{';
  ask('Where is Mira?', 100);
  result.no_json = talk('error').pop();
  at('talk').replaceChildren();
  at('clear').fire('click');
  at('tools').value = process.env.TOOLS;
  ask('Where is Mira?', 100);
  await sent();
  result.call = talk('call')[0];
  result.awaited = at('prompt').placeholder;
  ask('Lisbon', 100);
  await sent();
  result.after_call = talk('assistant')[0];
  result.awaited += at('prompt').placeholder;
  at('talk').replaceChildren();

  at('kind').value = 'text';
  at('temperature').value = '200';
  ask('Mira lives', 20);
  await sent();
  at('temperature').value = '0';
  result.error = talk('error')[0];

  ask('Mira lives', 900);
  at('cancel').fire('click');
  await sent();
  result.cancelled = at('told').textContent;
  console.log(JSON.stringify(result));
  process.exit(0);
}

main().catch(error => { console.error(error); process.exit(1); });
