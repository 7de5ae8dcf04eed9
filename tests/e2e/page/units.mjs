// SPDX-License-Identifier: Apache-2.0
// The parts of the page that need no document.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import {test} from 'node:test';
import vm from 'node:vm';

const folder = new URL('../../../services/gateway/openai/page/', import.meta.url);
const names = ['Api', 'EventParser', 'BatchRows', 'Seconds', 'Store', 'calculate', 'pageResult', 'withTool', 'messagesOf', 'requestOf',
               'markdown', 'openCalls', 'joinColumns', 'stepsAColumn', 'curlOf', 'pythonOf', 'DEFAULT_SETTINGS'];
const source = ['store', 'api', 'snippets', 'tools', 'markdown', 'batch'].map(name => fs.readFileSync(new URL(name + '.js', folder), 'utf8')).join('\n');
const page = vm.runInThisContext(`(() => { ${source}\n return {${names}}; })()`);

test('events are the same however their bytes are cut', () => {
  const text = ': hello\r\n\r\nevent: steps\r\ndata: {"a":\r\ndata: 1}\r\n\r\ndata: [DONE]\nid: 7\n\ndata\n\nevent: nothing\n\n';
  const whole = new page.EventParser().feed(text);
  assert.deepEqual(whole, [{event: 'steps', data: '{"a":\n1}', id: ''}, {event: 'message', data: '[DONE]', id: '7'}, {event: 'message', data: '', id: ''}]);
  for (let size = 1; size < text.length; ++size) {
    const parser = new page.EventParser(), events = [];
    for (let at = 0; at < text.length; at += size) events.push(...parser.feed(text.slice(at, at + size)));
    assert.deepEqual(events, whole, `pieces of ${size}`);
  }
});

// Runs `talk` with a gateway whose streams are given, each a list of events' data, and perhaps an error behind them.
async function withGateway(streams, talk) {
  const asked = [], before = globalThis.fetch;
  globalThis.document = {baseURI: 'http://gateway/'};
  globalThis.fetch = async (_, options) => {
    asked.push(options.headers['Last-Event-ID'] || '');
    const stream = streams[asked.length - 1];
    if (typeof stream === 'number') return new Response('', {status: stream});
    return new Response(new ReadableStream({
      pull(controller) {
        const next = stream.shift();
        if (next === 'lost') controller.error(new TypeError('the connection was reset'));
        else if (next === undefined) controller.close();
        else controller.enqueue(new TextEncoder().encode(`data: ${next.data}\nid: ${next.id}\n\n`));
      },
    }));
  };
  try {
    await talk(new page.Api(() => ''));
  } finally {
    globalThis.fetch = before;
  }
  return asked;
}

test('an answer goes on behind its last event where its connection is lost', async () => {
  const delta = (content, id) => ({data: JSON.stringify({choices: [{index: 0, delta: {content}}]}), id});
  const message = {content: ''};
  const asked = await withGateway(
    [[delta('a', 1), delta('b', 2), 'lost'], 503, [], [delta('c', 3)], [{data: '[DONE]', id: 4}]],
    api => api.answer({path: 'v1/chat/completions', body: {}}, message, undefined, () => {}));
  assert.equal(message.content, 'abc');
  assert.deepEqual(asked, ['', '2', '2', '2', '3']);
  // What is refused is told, and so is a stream that never had an event.
  for (const streams of [[[delta('a', 1), 'lost'], 409], [['lost']], [500]]) {
    const count = streams.length;
    const tried = await withGateway(streams, api => assert.rejects(
      api.answer({path: 'v1/chat/completions', body: {}}, {content: ''}, undefined, () => {})));
    assert.equal(tried.length, count);
  }
});

test('the calculator knows precedence, and what it does not understand', () => {
  for (const [text, value] of [['1 + 2 * 3', 7], ['(1 + 2) * 3', 9], ['-2 ^ 2', -4], ['2 ** 3 ^ 2', 512], ['2 * -3', -6],
                               ['7 % 4 / 2', 1.5], ['sqrt(16) + abs(-1)', 5], ['cos(0)', 1], ['1e3 + .5', 1000.5], ['10 - 2 - 3', 5]]) {
    assert.equal(page.calculate(text), value, text);
  }
  for (const text of ['', '1 +', '(1', 'alert(1)', '1 2', 'constructor', '__proto__', 'sqrt 4', '1;2', 'x']) {
    assert.throws(() => page.calculate(text), text);
  }
});

test('the page answers its own tools alone, and errors are answers', () => {
  const call = (name, text) => page.pageResult({function: {name, arguments: text}});
  assert.equal(call('calculate', '{"expression": "6 * 7"}'), '42');
  assert.match(call('calculate', '{"expression": "six"}'), /^Error: /);
  assert.match(call('calculate', '{"expr'), /^Error: /);
  assert.match(call('current_time', '{"time_zone": "Europe/Lisbon"}'), /20\d\d/);
  assert.equal(call('find_person', '{}'), null);
  assert.equal(call('toString', '{}'), null);
  const tool = {type: 'function', function: {name: 'a'}};
  assert.deepEqual(JSON.parse(page.withTool(page.withTool('', tool), tool)), [tool]);
  assert.throws(() => page.withTool('[{', tool));
  assert.throws(() => page.withTool('{}', tool));
});

test('a request has what is set and nothing else', () => {
  const conversation = {settings: {...page.DEFAULT_SETTINGS, model: 'm', temperature: '', max_tokens: '', system: 'be brief',
                                   top_k: '5', stop: 'END\n\n', extra: '{"top_k": 6}'}, messages: [
    {role: 'user', content: 'a'}, {role: 'assistant', content: '', error: 'cut'}, {role: 'user', content: 'b'},
    {role: 'assistant', content: '', reasoning: 'hm', tool_calls: [{id: '1', type: 'function', function: {name: 'f', arguments: '{}'}}]}]};
  assert.deepEqual(page.openCalls(conversation.messages).map(call => call.id), ['1']);
  conversation.messages.push({role: 'tool', tool_call_id: '1', name: 'f', content: 'c', by: 'you'});
  assert.deepEqual(page.openCalls(conversation.messages), []);
  const {path, body} = page.requestOf(conversation);
  assert.equal(path, 'v1/chat/completions');
  assert.deepEqual(JSON.parse(JSON.stringify(body)), {
    model: 'm', top_k: 6, stop: ['END'], messages: [
      {role: 'system', content: 'be brief'}, {role: 'user', content: 'a'}, {role: 'user', content: 'b'},
      {role: 'assistant', content: '', reasoning_content: 'hm', tool_calls: conversation.messages[3].tool_calls},
      {role: 'tool', tool_call_id: '1', content: 'c'}]});
  conversation.messages.push({role: 'assistant', content: 'd'}, {role: 'user', content: 'e'});
  // Thoughts of an earlier turn stay here.
  assert.ok(page.messagesOf(conversation).every(message => !message.reasoning_content));
});

test('answers are elements, and no answer takes more time than its length', () => {
  // A stand-in of the page's elements: their text, with their tags.
  globalThis.h = (tag, attributes = {}, ...children) => ({
    children: [...children],
    append(...more) { this.children.push(...more); },
    get lastChild() { return this.children.at(-1); },
    toString() { return `<${tag}>${this.children.join('')}</${tag}>`; },
  });
  globalThis.copyButton = () => '';
  const shown = text => page.markdown(text).join('');
  assert.equal(shown('a `b` **c** *d*'), '<p>a <code>b</code> <strong>c</strong> <em>d</em></p>');
  assert.equal(shown('``a ` b`` `c'), '<p><code>a ` b</code> `c</p>');
  assert.equal(shown('`a``b`'), '<p><code>a``b</code></p>');
  assert.equal(shown('[x](https://a.b/c) [y](ftp://a)'), '<p><a>x</a> [y](ftp://a)</p>');
  assert.equal(shown('> > a'), '<blockquote><blockquote><p>a</p></blockquote></blockquote>');
  const times = 200000;
  for (const piece of ['`', '*', '**a', '[', '[x](https://', '> ', '|', '# ']) {
    const text = shown(piece.repeat(times) + 'end');
    assert.ok(text.includes('end'), piece);
  }
  let runs = '';
  for (let i = 1; i < 600; ++i) runs += '`'.repeat(i) + 'a';
  assert.ok(shown(runs).includes('a'));
});

test('Python is written as Python', () => {
  assert.equal(page.pythonOf({a: [true, false, null], b: 'x"\n', c: {}, d: 1.5}),
               '{\n    "a": [\n        True,\n        False,\n        None,\n    ],\n    "b": "x\\"\\n",\n    "c": {},\n    "d": 1.5,\n}');
});

class Memory {
  items = new Map();
  room = Infinity;
  getItem(name) { return this.items.get(name) ?? null; }
  setItem(name, text) {
    if (text.length > this.room) throw new Error('full');
    this.items.set(name, text);
  }
}

test('what is kept comes back, whatever was kept before', () => {
  const storage = new Memory();
  for (const bad of ['', '{', '[]', 'null', '{"conversations": 1}', '{"conversations": [null, {"id": "x"}]}']) {
    storage.setItem('continuo', bad);
    assert.deepEqual(new page.Store(storage, new Memory()).conversations, []);
  }
  const store = new page.Store(storage, new Memory());
  const conversation = store.create();
  conversation.messages.push({role: 'user', content: 'hello'});
  store.keep(conversation);
  const other = new page.Store(storage, new Memory());
  assert.equal(other.conversations[0].messages[0].content, 'hello');
  // The other tab adds one; this one keeps what it is at.
  other.keep(other.create());
  conversation.messages.push({role: 'assistant', content: 'half'});
  store.takeOthers(new Set([conversation]));
  assert.equal(store.conversations.length, 2);
  assert.ok(store.conversations.includes(conversation));
  let full = 0;
  store.onFull = () => ++full;
  storage.room = 10;
  store.save();
  assert.equal(full, 1);
});

const step = (number, sequences, start = number / 10) =>
    ({number, start, seconds: 0.05, waiting: 0, kv_blocks_used: 1, sequences});
const sequence = (id, cached, fresh, generated, more = {}) =>
    ({id, prompt_tokens: 10, cached_tokens: cached, new_tokens: fresh, generated_tokens: generated, ...more});

test('the next sequence takes the first free row', () => {
  const batch = new page.BatchRows();
  let column = batch.take(step(1, [sequence('a', 0, 10, 1), sequence('b', 0, 6, 0)]));
  assert.deepEqual([column.prompt, column.generated, column.running], [16, 1, 2]);
  column = batch.take(step(2, [sequence('a', 10, 1, 2, {finish: 'stop'}), sequence('b', 6, 4, 1)]));
  assert.equal(column.cells.get(0).kind, 'end');
  assert.deepEqual([column.prompt, column.generated], [4, 2]);
  column = batch.take(step(3, [sequence('b', 10, 3, 4), sequence('c', 4, 6, 1)]));
  assert.equal(column.cells.get(0).id, 'c');
  assert.equal(column.cells.get(0).cached, 4);
  assert.equal(column.cells.get(1).generated, 3);
  assert.equal(batch.rows.length, 2);
  // An id that comes again after its end is another request.
  batch.take(step(4, [sequence('c', 10, 1, 2, {finish: 'length'})]));
  column = batch.take(step(5, [sequence('c', 0, 10, 1)]));
  assert.equal(column.generated, 1);
  assert.ok(column.cells.get(0).first);
});

test('the row of a sequence that ends is free from the next step on', () => {
  const batch = new page.BatchRows();
  batch.take(step(1, [sequence('a', 0, 10, 1), sequence('b', 0, 10, 1)]));
  batch.take(step(2, [sequence('a', 10, 1, 2), sequence('b', 10, 1, 2, {finish: 'stop'})]));
  const column = batch.take(step(3, [sequence('a', 11, 1, 3, {finish: 'length'}), sequence('c', 0, 10, 1)]));
  assert.deepEqual([0, 1].map(at => column.cells.get(at).kind), ['end', 'prompt']);
  assert.deepEqual([column.running, batch.rows.length], [2, 2]);
  assert.equal(batch.take(step(4, [sequence('c', 10, 1, 2), sequence('d', 0, 10, 1)])).cells.get(0).id, 'd');
});

test('equal ids, and further sequences of one request, have rows of their own', () => {
  const batch = new page.BatchRows();
  batch.take(step(1, [sequence('a', 0, 10, 1), sequence('a', 0, 10, 1), sequence('a', 0, 10, 1, {index: 1})]));
  const column = batch.take(step(2, [sequence('a', 10, 1, 2), sequence('a', 10, 1, 2), sequence('a', 10, 1, 2, {index: 1})]));
  assert.equal(batch.rows.length, 3);
  assert.equal(column.generated, 3);
});

test('a sequence that leaves without an end frees its row, one that was preempted waits', () => {
  const batch = new page.BatchRows();
  batch.take(step(1, [sequence('a', 0, 10, 1), sequence('b', 0, 10, 1), sequence('c', 0, 10, 1, {preempted: true})]));
  for (let number = 2; number < 40; ++number) {
    const column = batch.take(step(number, [sequence('b', 10, 1, number)]));
    assert.equal(column.cells.get(0)?.kind, number < 21 ? 'idle' : undefined, `step ${number}`);
    assert.equal(column.cells.get(2).kind, 'idle');
  }
  const column = batch.take(step(40, [sequence('d', 0, 10, 1), sequence('c', 0, 10, 2)]));
  assert.equal(column.cells.get(0).id, 'd');
  assert.equal(column.cells.get(2).id, 'c');
});

test('a watch that begins late counts no token twice', () => {
  const batch = new page.BatchRows();
  assert.equal(batch.take(step(100, [sequence('a', 60, 1, 51)])).generated, 1);
  assert.equal(batch.take(step(101, [sequence('a', 61, 1, 52)])).generated, 1);
});

test('seconds add steps up, and an idle one keeps the occupancy', () => {
  const batch = new page.BatchRows();
  const columns = [1, 2, 3].map(number => batch.take(step(number, [sequence('a', 9 + number, 1, number)])));
  assert.deepEqual(page.Seconds.sum(columns, null), {prompt: 0, generated: 3, kv: 1, waiting: 0, step: 50});
  assert.deepEqual(page.Seconds.sum([], columns[2]), {prompt: 0, generated: 0, kv: 1, waiting: 0, step: 0});
});

test('fast steps share columns, which show what matters most', () => {
  const batch = new page.BatchRows();
  const columns = [];
  for (let number = 0; number < 300; ++number) {
    const ends = number === 6;
    const of = number < 7 ? 'a' : 'b';
    const at = number < 7 ? number : number - 7;
    columns.push(batch.take(step(number, [at ? sequence(of, 9 + at, 1, at + 1, ends ? {finish: 'stop'} : {}) : sequence(of, 0, 10, 1)],
                                 number / 100)));
  }
  assert.equal(page.stepsAColumn([], 50), 1);
  assert.equal(page.stepsAColumn(columns.slice(0, 50), 50), 1);
  assert.equal(page.stepsAColumn(columns, 50), 4);  // two hundred in two seconds
  assert.equal(page.joinColumns(columns, 1), columns);
  const joined = page.joinColumns(columns, 4);
  assert.equal(joined.length, 75);
  assert.deepEqual([0, 1, 2].map(at => joined[at].cells.get(0).kind), ['prompt', 'end', 'token']);
  assert.deepEqual([joined[1].cells.get(0).generated, joined[1].steps, joined[1].cells.get(0).id], [4, 4, 'a']);
  assert.ok(joined[1].cells.get(0).first);
  // The columns are the same ones wherever the picture begins.
  assert.deepEqual(page.joinColumns(columns.slice(2), 4)[1], joined[1]);
});
