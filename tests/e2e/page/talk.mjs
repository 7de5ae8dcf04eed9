// SPDX-License-Identifier: Apache-2.0
// The conversation of the page, in Chromium: what a person does, and what is kept.
import assert from 'node:assert/strict';
import http from 'node:http';
import {test} from 'node:test';
import {answers, delta, facts, open, script, send, set, settled, waitForModel, withBrowser} from './browser.mjs';

const GREEDY = {temperature: '0', max_tokens: String(facts.max_tokens)};

async function ready(browser, more) {
  const opened = await open(browser, more);
  await waitForModel(opened.page);
  await set(opened.page, GREEDY);
  return opened;
}

test('an answer is the gateway\'s, and is there after a reload', () => withBrowser(async browser => {
  const {page, check} = await ready(browser);
  await send(page, facts.question);
  await settled(page, 2);
  assert.deepEqual(await answers(page), [facts.answer]);
  assert.match(await page.locator('.stats').innerText(), /\d+ prompt.* · \d+ generated · first after/);
  await page.reload();
  assert.deepEqual(await answers(page), [facts.answer]);
  assert.equal(await page.locator('#list li').count(), 1);
  assert.equal(await page.locator('[data-setting=max_tokens]').inputValue(), GREEDY.max_tokens);
  check();
}));

test('a message is edited and sent again, and what followed it goes', () => withBrowser(async browser => {
  const {page, check} = await ready(browser);
  await send(page, 'something else');
  await settled(page, 2);
  await send(page, 'and more');
  await settled(page, 4);
  await page.locator('.message.user').first().getByTitle('Edit and send again').click();
  await page.locator('.edit textarea').fill(facts.question);
  await page.press('.edit textarea', 'Enter');
  await settled(page, 2);
  assert.deepEqual(await answers(page), [facts.answer]);
  // The same question has the same answer where nothing is random.
  await page.getByTitle('Answer again').click();
  await settled(page, 2);
  assert.deepEqual(await answers(page), [facts.answer]);
  await page.press('#prompt', 'ArrowUp');
  assert.equal(await page.locator('.edit textarea').inputValue(), facts.question);
  await page.press('.edit textarea', 'Escape');
  assert.equal(await page.locator('.edit').count(), 0);
  check();
}));

test('conversations are kept, found and deleted', () => withBrowser(async browser => {
  const {page, check} = await ready(browser);
  await send(page, 'about violins');
  await settled(page, 2);
  await page.click('#new');
  assert.equal(await page.locator('#talk > *').count(), 0);
  await send(page, 'about trains');
  await settled(page, 2);
  assert.deepEqual(await page.locator('#list .title').allInnerTexts(), ['about trains', 'about violins']);
  await page.fill('#search', 'violin');
  assert.deepEqual(await page.locator('#list .title').allInnerTexts(), ['about violins']);
  await page.fill('#search', '');
  await page.getByTitle('Delete about trains').click();
  assert.deepEqual(await page.locator('#list .title').allInnerTexts(), ['about violins']);
  assert.equal(await page.locator('.message.user .text').innerText(), 'about violins');
  await page.evaluate(() => document.getElementById('sure').addEventListener('close', () => { window.isSure = true; }));
  await page.click('#remove-all');
  await page.click('#sure button[value=no]');
  await page.waitForFunction(() => window.isSure);
  assert.equal(await page.locator('#list li').count(), 1);
  await page.click('#remove-all');
  await page.click('#sure button[value=yes]');
  // A dialog tells that it was closed by a task of its own.
  await page.waitForFunction(() => document.getElementById('list').children.length === 0);
  assert.doesNotMatch(await page.evaluate(() => localStorage.getItem('continuo')), /violin|train/);
  check();
}));

test('another tab\'s conversations appear, and none is lost', () => withBrowser(async browser => {
  const {page, check} = await ready(browser);
  await send(page, 'of the first');
  await settled(page, 2);
  const other = await page.context().newPage();
  await other.goto(page.url());
  await waitForModel(other);
  await other.click('#new');
  await set(other, GREEDY);
  await send(other, 'of the second');
  await settled(other, 2);
  await page.waitForFunction(() => document.getElementById('list').children.length === 2);
  await send(page, 'more of the first');
  await settled(page, 4);
  await page.reload();
  assert.deepEqual(await page.locator('#list .title').allInnerTexts(), ['of the first', 'of the second']);
  check();
}));

test('an answer is stopped, and what came of it stays', () => withBrowser(async browser => {
  const {page, check} = await ready(browser);
  // An answer that never ends by itself.
  let gone;
  const left = new Promise(done => { gone = done; });
  const server = http.createServer((request, response) => {
    response.on('close', gone);
    response.writeHead(200, {'Content-Type': 'text/event-stream'});
    response.write(`data: ${JSON.stringify(delta({content: 'The beginning'}))}\n\n`);
  });
  await new Promise(done => server.listen(0, '127.0.0.1', done));
  await page.route('**/v1/chat/completions', route => route.continue({url: `http://127.0.0.1:${server.address().port}/`}));
  await send(page, facts.question);
  await page.waitForFunction(() => document.querySelector('.assistant .text')?.innerText === 'The beginning');
  assert.ok(await page.locator('#stop').isVisible());
  assert.ok(await page.locator('#list .pulse').isVisible());
  await page.keyboard.press('Escape');
  await settled(page, 2);
  await left;
  server.close();
  assert.match(await page.locator('.stats').innerText(), /stopped by you/);
  await page.reload();
  assert.deepEqual(await answers(page), ['The beginning']);
  check();
}));

test('errors of the gateway and of fields are told', () => withBrowser(async browser => {
  const {page, check} = await ready(browser, {expected: [/400/]});
  await set(page, {temperature: '200'});
  await send(page, facts.question);
  await settled(page, 2);
  assert.match(await page.locator('.error').innerText(), /temperature/);
  await set(page, {temperature: '0', tools: '[{'});
  assert.match(await page.locator('#tools-told').innerText(), /^Tools: /);
  await send(page, 'not sent');
  assert.match(await page.locator('#told').innerText(), /^Tools: /);
  assert.equal(await page.locator('#prompt').inputValue(), 'not sent');
  await set(page, {tools: '', extra: '[1]'});
  await page.press('#prompt', 'Enter');
  assert.match(await page.locator('#told').innerText(), /an object is needed/);
  await set(page, {extra: ''});
  await page.getByTitle('Answer again').click();
  await settled(page, 2);
  assert.deepEqual(await answers(page), [facts.answer]);
  check();
}));

test('a tool is called and a person answers', () => withBrowser(async browser => {
  const {page, check} = await ready(browser);
  await set(page, {max_tokens: '100', tools: JSON.stringify([facts.tool])});
  assert.equal(await page.locator('#tools-told').innerText(), 'find_person (you answer)');
  await send(page, facts.tool_question);
  await settled(page, 2);
  assert.match(await page.locator('.call').innerText(), /find_person\s+\{\s+"name": "Mira"\s+\}/);
  assert.equal(await page.locator('#prompt').getAttribute('placeholder'), 'Result of find_person');
  await page.fill('.call textarea', facts.tool_result);
  await page.press('.call textarea', 'Enter');
  await settled(page, 4);
  assert.deepEqual(await answers(page), [facts.tool_answer]);
  assert.match(await page.locator('.message.tool').innerText(), /find_person answered by you/);
  check();
}));

test('the page answers calls of its own tools, and thoughts are folded', () => withBrowser(async browser => {
  const {page, check} = await ready(browser);
  await script(page,
    [delta({reasoning_content: 'I had better '}), delta({reasoning_content: 'compute.'}),
     delta({tool_calls: [{index: 0, id: 'a', function: {name: 'calculate', arguments: ''}}]}),
     delta({tool_calls: [{index: 0, function: {arguments: '{"expression": "(2 + 3) * 4^2 /'}}]}),
     delta({tool_calls: [{index: 0, function: {arguments: ' 8"}'}}]}), delta({}, 'tool_calls')],
    [delta({content: 'It is **10**.'}), delta({}, 'stop')]);
  await page.getByRole('button', {name: '+ calculate'}).click();
  assert.equal(await page.locator('#tools-told').innerText(), 'calculate (the page answers)');
  const second = page.waitForRequest(request =>
    request.method() === 'POST' && request.postDataJSON().messages.at(-1).role === 'tool');
  await send(page, 'What is it?');
  const sent = (await second).postDataJSON().messages;
  assert.deepEqual(sent.at(-1), {role: 'tool', tool_call_id: 'a', content: '10'});
  assert.equal(sent.at(-2).reasoning_content, 'I had better compute.');
  await settled(page, 4);
  assert.deepEqual(await answers(page), ['It is 10.']);
  assert.equal(await page.locator('.thoughts').getAttribute('open'), null);
  await page.locator('.thoughts summary').click();
  assert.match(await page.locator('.thoughts').innerText(), /I had better compute\./);
  check();
}));

test('text of a model is never markup', () => withBrowser(async browser => {
  const {page, check} = await ready(browser);
  const hostile = '<img src=x onerror="document.title=1"><script>document.title=2</script> [x](javascript:alert(1)) ' +
                  '[y](https://example.org/)\n\n```html\n<b>bold</b>\n```';
  await script(page, [delta({content: hostile}), delta({}, 'stop')]);
  await send(page, '<i>hello</i>');
  await settled(page, 2);
  assert.equal(await page.title(), 'Continuo');
  assert.equal(await page.locator('#talk img, #talk script, #talk i, #talk b').count(), 0);
  assert.deepEqual(await page.locator('#talk a').evaluateAll(links => links.map(link => [link.href, link.rel])),
                   [['https://example.org/', 'noopener noreferrer']]);
  assert.equal(await page.locator('#talk pre').innerText(), '<b>bold</b>');
  check();
}));

test('a completion goes on with a text', () => withBrowser(async browser => {
  const {page, check} = await ready(browser);
  await set(page, {mode: 'text'});
  await send(page, facts.prompt);
  await settled(page, 2);
  assert.equal(await page.locator('.assistant .text').evaluate(element => element.textContent), facts.completion);
  check();
}));

test('the request is copied as curl and Python', () => withBrowser(async browser => {
  const {page, check} = await ready(browser);
  await set(page, {system: 'Don\'t "quote" $HOME', top_k: '5'});
  await page.fill('#prompt', facts.question);
  await page.click('#snippet');
  console.log('SNIPPETS ' + JSON.stringify([await page.locator('#curl').innerText(), await page.locator('#python').innerText()]));
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.locator('#curl-bar button').click();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  assert.equal(copied, await page.locator('#curl').evaluate(element => element.textContent));
  await page.keyboard.press('Escape');
  check();
}));

test('keys do what they say', () => withBrowser(async browser => {
  const {page, check} = await ready(browser);
  await page.keyboard.press('Alt+b');
  assert.ok(await page.locator('#batch').isVisible());
  await page.keyboard.press('Alt+s');
  assert.ok(await page.locator('#settings').isVisible());
  assert.ok(!(await page.locator('#batch').isVisible()));
  await page.keyboard.press('Alt+s');
  assert.ok(!(await page.locator('#settings').isVisible()));
  await page.locator('#prompt').blur();
  await page.keyboard.press('?');
  assert.ok(await page.locator('#keys').isVisible());
  await page.keyboard.press('Escape');
  await page.keyboard.press('/');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'prompt');
  await page.keyboard.type('a/?');
  assert.equal(await page.locator('#prompt').inputValue(), 'a/?');
  await page.keyboard.press('Shift+Enter');
  assert.equal(await page.locator('#prompt').inputValue(), 'a/?\n');
  await page.keyboard.press('Alt+t');
  await page.keyboard.press('Alt+t');
  assert.equal(await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme), 'dark');
  await page.reload();
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
  check();
}));
