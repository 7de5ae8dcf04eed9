// SPDX-License-Identifier: Apache-2.0
// Screenshots of the page in light and dark, on a desk and on a phone, while a worker is busy. Nothing may be wider than
// the screen, and what a finger presses is large enough.
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {base, delta, facts, open, screenshot, script, send, settled, waitForModel, withBrowser} from './browser.mjs';

const ANSWER = `Requests join a **running batch** between steps:

1. A prompt is read in pieces.
2. A finished row is free at once.

\`\`\`python
for step in engine:
    batch = scheduler.pick(free_rows)
\`\`\`

| batching | rows idle |
| --- | --- |
| static | until the longest ends |
| continuous | never |
`;

const SCREENS = {
  desk: {viewport: {width: 1440, height: 900}},
  tablet: {viewport: {width: 820, height: 1100}, hasTouch: true},
  phone: {viewport: {width: 390, height: 844}, hasTouch: true, isMobile: true, deviceScaleFactor: 2},
};

// Keeps the worker busy until `stopped` says so.
async function busy(stopped) {
  let number = 0;
  const one = async () => {
    while (!stopped()) {
      const response = await fetch(base + 'v1/completions', {
        method: 'POST', headers: {'Content-Type': 'application/json'},
        body: JSON.stringify({model: facts.model, prompt: `Number ${++number}: `.repeat(number % 40) + facts.question,
                              max_tokens: 10 + (7 * number) % 40, ignore_eos: true}),
      });
      await response.text();
    }
  };
  await Promise.all(Array.from({length: facts.max_running + 2}, one));
}

async function checkSizes(page, what) {
  const wide = await page.evaluate(() => [document.documentElement, ...document.querySelectorAll('main, aside, nav, header, .scroll')]
      .filter(element => element.scrollWidth > element.clientWidth + 1).map(element => element.id || element.tagName));
  assert.deepEqual(wide, [], what + ': wider than the screen');
}

for (const [screen, options] of Object.entries(SCREENS)) {
  for (const colorScheme of ['light', 'dark']) {
    test(`${screen}, ${colorScheme}`, () => withBrowser(async browser => {
      let stopped = false;
      const running = busy(() => stopped);
      try {
        const {page, check} = await open(browser, {options: {...options, colorScheme}});
        const name = part => `${screen}-${colorScheme}-${part}`;
        await waitForModel(page);
        await checkSizes(page, name('empty'));
        await screenshot(page, name('empty'));
        await script(page, [delta({reasoning_content: 'A list, and a table.'}), delta({content: ANSWER}), delta({}, 'stop')]);
        await send(page, 'What is continuous batching?');
        await settled(page, 2);
        await page.click('#show-batch');
        await page.waitForFunction(() => app.live.columns.length > 60 && app.live.seconds.values.length > 2);
        await checkSizes(page, name('batch'));
        await screenshot(page, name('batch'));
        if (screen !== 'desk') {
          await page.click('#close-batch');
          await checkSizes(page, name('talk'));
          await screenshot(page, name('talk'));
          const small = await page.locator('header button:visible, #composer button:visible').evaluateAll(buttons =>
              buttons.map(button => button.getBoundingClientRect()).filter(box => Math.min(box.width, box.height) < 30).length);
          assert.equal(small, 0);
          await page.click('#menu');
          await page.waitForFunction(() => document.getElementById('nav').getBoundingClientRect().left === 0);
          await screenshot(page, name('conversations'));
          await page.keyboard.press('Escape');
        }
        await page.click('#show-settings');
        await checkSizes(page, name('settings'));
        await screenshot(page, name('settings'));
        check();
      } finally {
        stopped = true;
        await running;
      }
    }));
  }
}
