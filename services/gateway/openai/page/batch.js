// SPDX-License-Identifier: Apache-2.0
'use strict';
// A worker's batch as rows over steps: a sequence keeps one row until its end, and the next one takes the first free
// row. Uses no clock but the worker's and knows no document.

class BatchRows {
  // A sequence that was in none of the last steps, for two seconds, is gone: cancelled, aborted or migrated. One that
  // was preempted may wait longer for its blocks.
  static MISSED_STEPS = 20;
  static MISSED_SECONDS = 2;
  static PREEMPTED_SECONDS = 60;
  static MAX_ROWS = 1024;

  rows = []; // {id, state: 'prompt' | 'token' | 'preempted' | 'end' | 'gone', …}
  byKey = new Map();

  isFree(row) {
    return row.state === 'end' || row.state === 'gone';
  }

  get running() {
    return this.rows.filter(row => row.state === 'prompt' || row.state === 'token').length;
  }

  // Marks all rows as free: nothing runs.
  clear() {
    for (const row of this.rows) {
      if (!this.isFree(row)) row.state = 'gone';
    }
  }

  // Takes a step of /v1/steps. Returns it as a column: the cells by row, and tokens.
  take(step) {
    for (const row of this.rows) {
      if (this.isFree(row) || step.number < row.step + BatchRows.MISSED_STEPS) continue;
      const limit = row.state === 'preempted' ? BatchRows.PREEMPTED_SECONDS : BatchRows.MISSED_SECONDS;
      if (step.start - row.start >= limit) row.state = 'gone';
    }
    const column = {
      number: step.number,
      start: step.start,
      seconds: step.seconds,
      waiting: step.waiting,
      kv: step.kv_blocks_used,
      prompt: 0,
      generated: 0,
      running: 0,
      cells: new Map(),
    };
    const same = new Map(); // ids are unique only within a tenant
    for (const sequence of step.sequences) {
      const name = sequence.id + '#' + (sequence.index || 0);
      const nth = same.get(name) || 0;
      same.set(name, nth + 1);
      this.takeSequence(step, column, sequence, name + '#' + nth);
    }
    this.rows.forEach((row, at) => {
      if (!this.isFree(row) && !column.cells.has(at)) column.cells.set(at, {kind: 'idle', id: row.id});
    });
    return column;
  }

  takeSequence(step, column, s, key) {
    let at = this.byKey.get(key);
    if (at === undefined || this.rows[at].state === 'end') {
      // The row of a sequence that ends in this very step shows its end.
      at = this.rows.findIndex((row, at) => this.isFree(row) && !column.cells.has(at));
      if (at < 0) at = this.rows.length;
      if (at >= BatchRows.MAX_ROWS) return;
      if (this.rows[at] && this.byKey.get(this.rows[at].key) === at) this.byKey.delete(this.rows[at].key);
      this.rows[at] = {
        key,
        id: s.id,
        first: step.number,
        generated: null,
        cached: Math.min(s.cached_tokens, s.prompt_tokens),
      };
      this.byKey.set(key, at);
    }
    const row = this.rows[at];
    const filled = s.cached_tokens + s.new_tokens;
    const prompt = Math.max(0, Math.min(filled, s.prompt_tokens) - Math.min(s.cached_tokens, s.prompt_tokens));
    // A watch that begins later than the sequence sees one token in its first step.
    const before = row.generated ?? Math.max(0, s.generated_tokens - (filled >= s.prompt_tokens ? 1 : 0));
    const generated = Math.max(0, s.generated_tokens - before);
    Object.assign(row, {
      state: s.finish ? 'end' : s.preempted ? 'preempted' : filled < s.prompt_tokens ? 'prompt' : 'token',
      step: step.number,
      start: step.start,
      prompt: s.prompt_tokens,
      filled: Math.min(filled, s.prompt_tokens),
      generated: s.generated_tokens,
      finish: s.finish,
    });
    column.prompt += prompt;
    column.generated += generated;
    column.running += 1;
    column.cells.set(at, {
      kind: s.preempted ? 'preempted' : s.finish ? 'end' : prompt ? 'prompt' : 'token',
      id: s.id,
      first: row.first === step.number,
      prompt,
      generated,
      total: s.generated_tokens,
      promptTotal: s.prompt_tokens,
      cached: row.cached,
      finish: s.finish,
    });
  }
}

// How many steps make a column of the picture so that `shown` columns are two seconds or more: a power of two.
function stepsAColumn(columns, shown) {
  const last = columns.at(-1);
  if (!last) return 1;
  const from = columns.findLastIndex(column => column.start < last.start - 2);
  return 2 ** Math.max(0, Math.ceil(Math.log2((columns.length - 1 - from) / shown)));
}

// Joins columns of `size` steps, which are always the same ones, to one each. Of a row's cells the one that says most
// is shown.
function joinColumns(columns, size) {
  if (size === 1) return columns;
  const weight = {end: 4, prompt: 3, preempted: 2, token: 1, idle: 0};
  const joined = [];
  for (const column of columns) {
    const number = Math.floor(column.number / size);
    let last = joined.at(-1);
    if (!last || last.group !== number) {
      last = {...column, group: number, steps: 0, seconds: 0, cells: new Map()};
      joined.push(last);
    }
    last.steps += 1;
    last.seconds += column.seconds;
    for (const [row, cell] of column.cells) {
      const old = last.cells.get(row);
      const shown = !old || weight[cell.kind] >= weight[old.kind] ? cell : old;
      last.cells.set(row, {
        ...shown,
        first: Boolean(old?.first || cell.first),
        prompt: (old?.prompt || 0) + (cell.prompt || 0),
        generated: (old?.generated || 0) + (cell.generated || 0),
      });
    }
  }
  return joined;
}

// Sums of what steps did in each second, for plots.
class Seconds {
  constructor(length = 60) {
    this.length = length;
    this.values = []; // the oldest first: {prompt, generated, kv, waiting, step}
  }

  // Ends a second.
  push(value) {
    this.values.push(value);
    if (this.values.length > this.length) this.values.shift();
  }

  static sum(columns, last) {
    const end = columns.at(-1) || last;
    const times = columns.map(column => column.seconds).sort((a, b) => a - b);
    const add = name => columns.reduce((sum, column) => sum + column[name], 0);
    return {
      prompt: add('prompt'),
      generated: add('generated'),
      kv: end ? end.kv : 0,
      waiting: end ? end.waiting : 0,
      step: times.length ? times[times.length >> 1] * 1000 : 0,
    };
  }
}
