// SPDX-License-Identifier: Apache-2.0
'use strict';
// Draws the batch and the plots on canvases, in the colours of the style sheet.

// The colours of the style sheet as canvases take them, in the theme that holds now.
function themeColours() {
  const probe = byId('probe');
  const colours = {};
  for (const name of ['prompt', 'token', 'end', 'grid', 'quiet', 'text', 'accent', 'back']) {
    probe.style.color = `var(--${name})`;
    colours[name] = getComputedStyle(probe).color;
  }
  return colours;
}

// Makes a canvas as sharp as the screen. Returns its context and its size in CSS pixels.
function canvasContext(canvas) {
  const width = canvas.clientWidth,
    height = canvas.clientHeight,
    scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext('2d');
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return {context, width, height};
}

class BatchPicture {
  static GUTTER = 26;

  // `isOwn` tells of an id whether it is of this page.
  constructor(canvas, isOwn) {
    this.canvas = canvas;
    this.isOwn = isOwn;
    this.columns = [];
    this.numRows = 4;
  }

  // Says where a point is: {column, row}.
  at(x, y) {
    const column = this.columns[this.begin + Math.floor((x - BatchPicture.GUTTER) / this.cell)];
    const row = Math.floor(y / this.row);
    return x < BatchPicture.GUTTER || !column || row >= this.numRows ? null : {column, row};
  }

  draw(columns, numRows, colours) {
    this.numRows = numRows;
    const canvas = this.canvas;
    this.row = numRows <= 8 ? 26 : numRows <= 16 ? 20 : numRows <= 32 ? 13 : numRows <= 64 ? 8 : 4;
    canvas.style.height = this.row * numRows + 'px';
    const {context, width, height} = canvasContext(canvas);
    this.cell = width < 500 ? 9 : 12;
    const shown = Math.max(1, Math.floor((width - BatchPicture.GUTTER) / this.cell));
    this.size = stepsAColumn(columns, shown);
    columns = joinColumns(columns.slice(-shown * this.size - this.size), this.size);
    this.columns = columns;
    this.begin = Math.max(0, columns.length - shown);
    const gap = this.row > 6 ? 1 : 0;
    context.font = '10px system-ui, sans-serif';
    context.textBaseline = 'middle';
    for (let row = 0; row < numRows; ++row) {
      const y = row * this.row;
      context.fillStyle = colours.grid;
      context.fillRect(BatchPicture.GUTTER, y + gap, shown * this.cell - 1, this.row - 2 * gap);
      if (this.row >= 13 || row % 8 === 0) {
        context.fillStyle = colours.quiet;
        context.textAlign = 'right';
        context.fillText(String(row + 1), BatchPicture.GUTTER - 6, y + Math.max(this.row, 10) / 2);
      }
    }
    context.textAlign = 'left';
    for (let at = this.begin; at < columns.length; ++at) this.drawColumn(context, at, gap, height, colours);
    if (this.row >= 18) this.drawNames(context, colours);
  }

  drawColumn(context, at, gap, height, colours) {
    const column = this.columns[at];
    const x = BatchPicture.GUTTER + (at - this.begin) * this.cell;
    const width = this.cell - 1;
    for (const [row, cell] of column.cells) {
      if (row >= this.numRows) continue;
      const y = row * this.row + gap,
        h = this.row - 2 * gap;
      if (cell.kind === 'idle' || cell.kind === 'preempted') {
        context.fillStyle = colours[cell.kind === 'idle' ? 'token' : 'end'];
        context.globalAlpha = 0.35;
        context.fillRect(x, y + h / 2 - 1, this.cell, 2);
        context.globalAlpha = 1;
        continue;
      }
      context.fillStyle = colours[cell.kind === 'end' ? 'end' : cell.prompt ? 'prompt' : 'token'];
      context.fillRect(x, y, width, h);
      // The step that reads the last of a prompt generates the first token.
      if (cell.kind === 'prompt' && cell.generated) {
        context.fillStyle = colours.token;
        context.fillRect(x + width - Math.ceil(width / 3), y, Math.ceil(width / 3), h);
      }
      if (this.isOwn(cell.id)) {
        context.fillStyle = colours.text;
        context.fillRect(x, y + h - 2, this.cell, 2);
      }
    }
    const before = this.columns[at - 1];
    if (at > this.begin && before && this.numberOf(column) !== this.numberOf(before) + 1) {
      context.fillStyle = colours.end;
      context.fillRect(x - 1, 0, 1, height);
    }
  }

  // Columns whose numbers do not follow one another have steps between them that were not seen.
  numberOf(column) {
    return this.size === 1 ? column.number : column.group;
  }

  // The id of a sequence, from where it begins, if there is room for it.
  drawNames(context, colours) {
    for (let row = 0; row < this.numRows; ++row) {
      let from = null,
        id = null;
      const flush = to => {
        if (from === null || id === null) return;
        const text = (this.isOwn(id) ? 'yours ' : '') + id;
        const width = context.measureText(text).width + 8;
        if (width > (to - from) * this.cell - 4) return;
        const x = BatchPicture.GUTTER + (from - this.begin) * this.cell + 3;
        context.fillStyle = colours.back;
        context.globalAlpha = 0.82;
        context.beginPath();
        context.roundRect(x, row * this.row + this.row / 2 - 7, width, 14, 4);
        context.fill();
        context.globalAlpha = 1;
        context.fillStyle = colours.text;
        context.fillText(text, x + 4, row * this.row + this.row / 2 + 0.5);
      };
      for (let at = this.begin; at <= this.columns.length; ++at) {
        const cell = at < this.columns.length ? this.columns[at].cells.get(row) : undefined;
        const solid = cell && cell.kind !== 'idle' && cell.kind !== 'preempted';
        if (from !== null && (!solid || cell.id !== id || cell.first)) {
          flush(at);
          from = null;
        }
        if (from === null && solid) {
          from = at;
          id = cell.id;
        }
      }
    }
  }
}

// A plot of the last seconds: areas in front of each other, of one scale from 0.
function drawPlot(canvas, series, length, most, colours) {
  const {context, width, height} = canvasContext(canvas);
  const peak = Math.max(most || 0, ...series.flatMap(({values}) => values), 1e-9);
  context.strokeStyle = colours.grid;
  context.beginPath();
  context.moveTo(0, height - 0.5);
  context.lineTo(width, height - 0.5);
  context.stroke();
  for (const {values, colour} of series) {
    if (values.length < 2) continue;
    const x = at => (width * (length - values.length + at)) / (length - 1);
    const y = value => height - 1 - ((height - 4) * value) / peak;
    const line = () => {
      context.beginPath();
      values.forEach((value, at) => context[at ? 'lineTo' : 'moveTo'](x(at), y(value)));
    };
    line();
    context.lineTo(x(values.length - 1), height);
    context.lineTo(x(0), height);
    context.closePath();
    context.fillStyle = colours[colour];
    context.globalAlpha = 0.18;
    context.fill();
    context.globalAlpha = 1;
    line();
    context.strokeStyle = colours[colour];
    context.lineWidth = 1.5;
    context.stroke();
  }
}
