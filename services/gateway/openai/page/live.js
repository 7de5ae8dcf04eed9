// SPDX-License-Identifier: Apache-2.0
'use strict';
// The panel of the batch: follows /v1/steps of one worker and /fleet while it is open and the page is seen.

class LivePanel {
  // Of steps, and of cells in them, that are kept.
  static MAX_COLUMNS = 8192;
  static MAX_CELLS = 65536;
  static FLEET_MS = 2000;

  constructor(api, isOwn) {
    this.api = api;
    this.open = false;
    this.worker = ''; // by name; '' until the fleet is known
    this.fleet = [];
    this.last = null; // the last column
    this.picture = new BatchPicture(byId('rows'), isOwn);
    this.onFleet = () => {};
    byId('worker').addEventListener('change', () => this.follow(byId('worker').value));
    byId('rows').addEventListener('pointermove', event => this.tell(event));
    byId('rows').addEventListener('pointerleave', () => this.tell(null));
    byId('pause').addEventListener('click', () => this.pause(!this.paused));
    document.addEventListener('visibilitychange', () => this.update());
    this.reset();
    this.pollFleet();
    setInterval(() => this.endSecond(), 1000);
  }

  reset() {
    this.batch = new BatchRows();
    this.columns = [];
    this.numCells = 0;
    this.second = []; // columns since the last full second
    this.seconds = new Seconds();
    this.info = null; // the event `worker`
    this.dropped = 0;
    this.last = null;
  }

  // Frozen, the picture stands still while steps are still counted.
  pause(paused) {
    this.paused = paused;
    byId('pause').replaceChildren(icon(paused ? 'i-play' : 'i-pause'));
    byId('pause').title = paused ? 'Go on' : 'Freeze the picture';
    byId('pause').setAttribute('aria-label', byId('pause').title);
    this.frozen = paused ? [...this.columns] : null;
    this.draw();
  }

  setOpen(open) {
    this.open = open;
    this.update();
  }

  // Opens or closes the stream, as the panel, the page and the key demand.
  update(again = false) {
    const wanted = this.open && !document.hidden && this.worker;
    if (this.stream && (again || !wanted)) {
      this.stream.abort();
      this.stream = null;
    }
    if (wanted && !this.stream) this.watch();
    if (this.open && !document.hidden) this.draw();
  }

  follow(worker) {
    if (worker === this.worker) return;
    this.worker = worker;
    this.reset();
    this.pause(false);
    this.update(true);
  }

  async watch() {
    const stream = (this.stream = new AbortController());
    for (let wait = 1000; this.stream === stream; wait = Math.min(2 * wait, 15000)) {
      try {
        this.say('connecting …');
        for await (const {event, data} of this.api.events('v1/steps?worker=' + encodeURIComponent(this.worker), {
          signal: stream.signal,
        })) {
          if (this.stream !== stream) return;
          wait = 1000;
          if (event === 'worker') this.begin(JSON.parse(data));
          if (event === 'steps') this.take(JSON.parse(data));
          if (event === 'error') throw new ApiError(JSON.parse(data).error.message);
        }
        throw new ApiError('the stream ended');
      } catch (error) {
        if (this.stream !== stream) return;
        this.say(error.message, true);
      }
      await new Promise(done => setTimeout(done, wait));
    }
  }

  begin(info) {
    // Another process may answer, whose steps count from 1.
    this.batch.clear();
    this.info = info;
    this.say('');
    this.draw();
  }

  take({steps, dropped}) {
    this.dropped += dropped;
    for (const step of steps) {
      this.last = this.batch.take(step);
      this.columns.push(this.last);
      this.second.push(this.last);
    }
    for (const column of this.columns.slice(-steps.length)) this.numCells += column.cells.size;
    let drop = Math.max(0, this.columns.length - LivePanel.MAX_COLUMNS);
    for (let at = 0; at < drop || this.numCells > LivePanel.MAX_CELLS; ++at) {
      this.numCells -= this.columns[at].cells.size;
      drop = Math.max(drop, at + 1);
    }
    this.columns.splice(0, drop);
    this.draw();
  }

  endSecond() {
    const load = this.fleet.find(worker => worker.worker === this.worker);
    const idle = load && !load.running && !load.waiting;
    if (!this.second.length && idle) {
      this.batch.clear();
      this.last = {kv: load.kv_blocks_used, waiting: 0};
    }
    this.seconds.push(Seconds.sum(this.second.splice(0), this.last));
    if (this.open && !document.hidden) this.drawPlots();
  }

  draw() {
    if (!this.open || this.due) return;
    this.due = true;
    requestAnimationFrame(() => {
      this.due = false;
      const most = this.info?.max_running || 4;
      const rows = Math.max(Math.min(4, most), Math.min(this.batch.rows.length, 96));
      this.picture.draw(this.frozen || this.columns, rows, themeColours());
      byId('rows').setAttribute(
        'aria-label',
        `${this.batch.running} of ${most} rows run, ${this.last?.waiting || 0} wait`,
      );
      byId('more-rows').textContent =
        this.batch.rows.length > rows ? `and ${this.batch.rows.length - rows} more rows` : '';
      const size = this.picture.size;
      byId('step').textContent = !this.columns.length
        ? ''
        : (size > 1 ? `${size} steps a column, ` : '') + 'step ' + this.columns.at(-1).number;
      byId('lost').textContent = this.dropped ? `${this.dropped} steps not seen` : '';
      if (!this.seconds.values.length) this.drawPlots();
    });
  }

  drawPlots() {
    const colours = themeColours(),
      {values, length} = this.seconds;
    const now = values.at(-1) || {prompt: 0, generated: 0, kv: 0, waiting: 0, step: 0};
    const of = name => values.map(value => value[name]);
    const total = this.info?.kv_blocks_total || 0;
    drawPlot(byId('plot-generated'), [{values: of('generated'), colour: 'token'}], length, 0, colours);
    drawPlot(byId('plot-prompt'), [{values: of('prompt'), colour: 'prompt'}], length, 0, colours);
    drawPlot(byId('plot-kv'), [{values: of('kv'), colour: 'accent'}], length, total, colours);
    drawPlot(byId('plot-queue'), [{values: of('waiting'), colour: 'end'}], length, 1, colours);
    byId('now-generated').textContent = countText(now.generated);
    byId('now-prompt').textContent = countText(now.prompt);
    byId('now-kv').textContent = total ? Math.round((100 * now.kv) / total) + ' %' : '–';
    byId('now-queue').textContent = countText(now.waiting);
    byId('step-time').textContent = now.step ? now.step.toFixed(now.step < 10 ? 1 : 0) + ' ms a step' : '';
  }

  // Tells what is under the pointer.
  tell(event) {
    const found = event && this.picture.at(event.offsetX, event.offsetY);
    const cell = found && found.column.cells.get(found.row);
    if (!found) {
      byId('cell').textContent = '';
      return;
    }
    const parts = [
      found.column.steps > 1
        ? `${found.column.steps} steps from ${found.column.number}`
        : 'step ' + found.column.number,
      (found.column.seconds * 1000).toFixed(1) + ' ms',
      `row ${found.row + 1}`,
    ];
    if (!cell) {
      parts.push('free');
    } else if (cell.kind === 'idle') {
      parts.push(cell.id, 'not in this step');
    } else {
      parts.push(cell.id);
      if (cell.prompt)
        parts.push(
          `${cell.prompt} of ${cell.promptTotal} prompt tokens` + (cell.cached ? `, ${cell.cached} cached` : ''),
        );
      if (cell.generated) parts.push(`token ${cell.total}` + (cell.generated > 1 ? `, ${cell.generated} here` : ''));
      if (cell.kind === 'preempted') parts.push('preempted');
      if (cell.finish) parts.push('ends: ' + cell.finish.replaceAll('_', ' '));
    }
    byId('cell').textContent = parts.join(' · ');
  }

  say(text, bad = false) {
    byId('live-told').textContent = text;
    byId('live-told').classList.toggle('bad', bad);
  }

  async pollFleet() {
    try {
      if (!document.hidden) {
        this.fleet = (await this.api.json('fleet')).workers;
        this.showFleet();
        this.onFleet(null);
      }
    } catch (error) {
      this.fleet = [];
      this.showFleet();
      this.onFleet(error);
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.pollFleet(), LivePanel.FLEET_MS);
  }

  showFleet() {
    const names = [...new Set(this.fleet.map(worker => worker.worker))];
    const select = byId('worker');
    if (names.join('\n') !== [...select.options].map(option => option.value).join('\n')) {
      select.replaceChildren(...names.map(name => h('option', {value: name}, name)));
    }
    if (!names.includes(this.worker)) {
      const serving = this.fleet.find(worker => worker.state === 'serving') || this.fleet[0];
      if (serving) this.follow(serving.worker);
    }
    select.value = this.worker;
    if (!this.open) return;
    byId('fleet').replaceChildren(
      ...this.fleet.map(worker => {
        const kv = h('meter', {
          max: worker.kv_blocks_total || 1,
          value: worker.kv_blocks_used,
          title: `${worker.kv_blocks_used} of ${worker.kv_blocks_total} blocks`,
        });
        return h(
          'tr',
          {class: worker.worker === this.worker ? 'chosen' : ''},
          h(
            'td',
            {},
            h('button', {type: 'button', class: 'link', on: {click: () => this.follow(worker.worker)}}, worker.worker),
            h('small', {}, worker.model),
          ),
          h(
            'td',
            {},
            h('span', {class: 'state ' + worker.state}, worker.slow ? worker.state + ', slow' : worker.state),
          ),
          h('td', {class: 'number'}, String(worker.running)),
          h('td', {class: 'number'}, String(worker.waiting)),
          h('td', {}, kv),
        );
      }),
    );
    byId('no-fleet').hidden = this.fleet.length > 0;
  }
}
