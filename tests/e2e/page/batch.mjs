// SPDX-License-Identifier: Apache-2.0
// The batch of a worker on the page, in Chromium, with a gateway that wants a key.
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {base, facts, open, send, set, settled, waitForModel, withBrowser} from './browser.mjs';

// The numbers of pixels of the picture in the colours of prompts, tokens and ends.
const pixels = page => page.evaluate(() => {
  const colours = themeColours();
  const canvas = document.getElementById('rows');
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const seen = {prompt: 0, token: 0, end: 0};
  for (const name of Object.keys(seen)) {
    const [r, g, b] = colours[name].match(/\d+/g).map(Number);
    for (let i = 0; i < data.length; i += 4) seen[name] += data[i] === r && data[i + 1] === g && data[i + 2] === b;
  }
  return seen;
});

// `number` answers at a time, through the page's own gateway.
function load(number, max_tokens) {
  return Promise.all(Array.from({length: number}, async (_, at) => {
    const response = await fetch(base + 'v1/completions', {
      method: 'POST',
      headers: {'Content-Type': 'application/json', Authorization: 'Bearer ' + facts.key},
      body: JSON.stringify({model: facts.model, prompt: `Number ${at}: ` + facts.question, max_tokens, ignore_eos: true}),
    });
    assert.equal(response.status, 200, await response.text());
  }));
}

// Opens the page with a key, and the batch in it.
async function openBatch(browser) {
  const opened = await open(browser, {expected: [/401/]});
  await opened.page.fill('#key', facts.key);
  await opened.page.press('#key', 'Tab');
  await waitForModel(opened.page);
  await opened.page.click('#show-batch');
  await opened.page.waitForFunction(() => app.live.info !== null);
  return opened;
}

test('a key is asked for and kept for the tab alone', () => withBrowser(async browser => {
  const {page, check} = await open(browser, {expected: [/401/]});
  await page.waitForFunction(() => document.getElementById('key-told').textContent !== '');
  assert.equal(await page.locator('#key-told').innerText(), 'This gateway wants a key.');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'key');
  await page.fill('#key', 'a wrong key');
  await page.press('#key', 'Tab');
  await page.waitForFunction(() => document.getElementById('connection').className === 'off');
  await page.fill('#key', facts.key);
  await page.press('#key', 'Tab');
  await waitForModel(page);
  await set(page, {temperature: '0', max_tokens: String(facts.max_tokens)});
  await send(page, facts.question);
  await settled(page, 2);
  assert.equal(await page.locator('.assistant .text').innerText(), facts.answer);
  await page.reload();
  await waitForModel(page);
  assert.ok(!(await page.evaluate(() => localStorage.getItem('continuo'))).includes(facts.key));
  await page.click('#snippet');
  const snippets = await page.locator('#curl').innerText() + await page.locator('#python').innerText();
  assert.ok(!snippets.includes(facts.key));
  assert.match(snippets, /\$CONTINUO_KEY/);
  check();
}));

test('rows show prompts, tokens and ends, and a free row is taken again', () => withBrowser(async browser => {
  const {page, check} = await openBatch(browser);
  assert.equal(await page.evaluate(() => app.live.info.max_running), facts.max_running);
  // Three times as many as there are rows.
  const number = 3 * facts.max_running;
  await load(number, 60);
  await page.waitForFunction(number => {
    const cells = app.live.columns.flatMap(column => [...column.cells.values()]);
    return cells.filter(cell => cell.kind === 'end').length === number;
  }, number);
  const seen = await page.evaluate(() => {
    const {columns, batch, dropped} = app.live;
    const first = columns.flatMap(column => [...column.cells.values()]).filter(cell => cell.first);
    return {rows: batch.rows.length, running: batch.running, dropped, sequences: new Set(first.map(cell => cell.id)).size,
            generated: columns.reduce((sum, column) => sum + column.generated, 0),
            busiest: Math.max(...columns.map(column => column.running)),
            longestQueue: Math.max(...columns.map(column => column.waiting))};
  });
  assert.ok(seen.longestQueue > 0, JSON.stringify(seen));
  assert.deepEqual({...seen, longestQueue: 1}, {
    rows: facts.max_running, running: 0, dropped: 0, sequences: number, generated: 60 * number,
    busiest: facts.max_running, longestQueue: 1});
  await page.waitForFunction(number => document.getElementById('rows').ariaLabel === `0 of ${number} rows run, 0 wait`,
                             facts.max_running);
  // A picture as it was while they ran.
  await page.evaluate(() => {
    app.live.frozen = app.live.columns.slice(0, 60);
    app.live.draw();
  });
  await page.waitForFunction(() => !app.live.due);
  for (const [name, number] of Object.entries(await pixels(page))) assert.ok(number > 50, `${name}: ${number}`);
  check();
}));

test('one\'s own request is told from others\'', () => withBrowser(async browser => {
  const {page, check} = await open(browser, {expected: [/401/]});
  await page.fill('#key', facts.key);
  await page.press('#key', 'Tab');
  await waitForModel(page);
  await set(page, {max_tokens: '20', extra: '{"ignore_eos": true}'});
  await page.click('#show-batch');
  await page.waitForFunction(() => app.live.info !== null);
  await send(page, facts.question);
  await settled(page, 2);
  await page.waitForFunction(() => app.live.batch.rows.some(row => app.own.has(row.id) && row.state === 'end'));
  // What is under the pointer is told.
  await page.waitForFunction(() => !app.live.due && app.live.picture.columns.at(-1)?.number === app.live.columns.at(-1).number);
  const x = await page.evaluate(() => {
    const {columns, begin, cell} = app.live.picture;
    return BatchPicture.GUTTER + (columns.length - begin - 0.5) * cell;
  });
  await page.locator('#rows').hover({position: {x, y: 5}});
  assert.match(await page.locator('#cell').innerText(), /^step \d+ · [\d.]+ ms · row 1 · [0-9a-f]{8} · .*ends: length$/);
  check();
}));

test('the stream is closed while nobody looks, and opened again', () => withBrowser(async browser => {
  const {page, check} = await openBatch(browser);
  await page.click('#close-batch');
  assert.equal(await page.evaluate(() => app.live.stream), null);
  await page.evaluate(() => { app.live.info = null; });
  await page.click('#show-batch');
  await page.waitForFunction(() => app.live.info !== null);
  check();
}));
