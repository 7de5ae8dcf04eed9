// SPDX-License-Identifier: Apache-2.0
// Chromium for the tests of the gateway's page. Every page is watched: errors, violations of its policy and requests to
// elsewhere fail the test that opened it.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';

const {chromium} = createRequire(process.env.MODULES + '/')('playwright-core');

export const base = process.env.PAGE_URL;
export const facts = JSON.parse(process.env.FACTS);
const out = process.env.SCREENSHOTS;

export async function withBrowser(test) {
  const args = process.getuid() === 0 ? ['--no-sandbox'] : [];
  const browser = await chromium.launch({executablePath: process.env.CHROMIUM, args});
  try {
    await test(browser);
  } finally {
    await browser.close();
  }
}

// Opens the page in a fresh profile. `check()` of the result says that nothing bad has happened. `expected` are errors of
// the console that belong to the test, as patterns.
export async function open(browser, {options = {}, expected = []} = {}) {
  const context = await browser.newContext({viewport: {width: 1280, height: 800}, ...options});
  const page = await context.newPage();
  const bad = [];
  page.on('pageerror', error => bad.push(error.stack));
  page.on('console', message => {
    if (message.type() === 'error' && !expected.some(pattern => pattern.test(message.text()))) bad.push(message.text());
  });
  page.on('request', request => {
    if (!request.url().startsWith(base) && !request.url().startsWith('data:')) bad.push('loads ' + request.url());
  });
  await page.goto(base);
  page.setDefaultTimeout(60000);
  return {page, check: () => assert.deepEqual(bad, [])};
}

export async function waitForModel(page) {
  await page.waitForFunction(model => document.getElementById('model').value === model, facts.model);
}

// Sets fields of the settings, by their name in requests.
export async function set(page, values) {
  if (!(await page.locator('#settings').isVisible())) await page.click('#show-settings');
  for (const [name, value] of Object.entries(values)) {
    const field = page.locator(`[data-setting="${name}"]`);
    if (name === 'mode' || name === 'reasoning_effort') await field.selectOption(value);
    else await field.fill(value);
  }
}

export async function send(page, text) {
  await page.fill('#prompt', text);
  await page.press('#prompt', 'Enter');
}

// Waits until `number` messages are there and nothing comes any more.
export async function settled(page, number) {
  await page.waitForFunction(number => document.getElementById('talk').children.length === number &&
                             document.getElementById('stop').hidden, number);
}

// The texts of the answers.
export const answers = page => page.locator('.message.assistant > .text').allInnerTexts();

// Answers the page's next chats with these lists of events instead of the gateway's.
export async function script(page, ...lists) {
  await page.route('**/v1/chat/completions', route => {
    const events = lists.shift();
    const body = events.map(event => `data: ${JSON.stringify(event)}\n\n`).join('') + 'data: [DONE]\n\n';
    return route.fulfill({status: 200, contentType: 'text/event-stream', body});
  });
}

export const delta = (delta, finish_reason = null) =>
    ({id: 'chatcmpl-req-' + '0'.repeat(32), choices: [{index: 0, delta, finish_reason}]});

export async function screenshot(page, name) {
  fs.mkdirSync(out, {recursive: true});
  await page.screenshot({path: path.join(out, name + '.png')});
}
