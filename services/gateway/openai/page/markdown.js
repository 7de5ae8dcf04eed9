// SPDX-License-Identifier: Apache-2.0
'use strict';
// Shows answers: headings, lists, tables, quotes, code, emphasis and links. Builds elements, so no text of a model
// becomes markup.

// The pieces of a line: [its code, or '' for plain text; the plain text before it]. Code is between two runs of
// back-ticks of one length. The time goes with the length of the line, whatever is in it.
function splitCode(text) {
  const runs = [...text.matchAll(/`+/g)],
    ofLength = new Map(),
    pieces = [];
  runs.forEach((run, i) => {
    if (!ofLength.has(run[0].length)) ofLength.set(run[0].length, {all: [], next: 0});
    ofLength.get(run[0].length).all.push(i);
  });
  let at = 0;
  for (let i = 0; i < runs.length; ++i) {
    const length = runs[i][0].length,
      same = ofLength.get(length);
    while (same.next < same.all.length && same.all[same.next] <= i) ++same.next;
    if (same.next === same.all.length) continue;
    const end = same.all[same.next];
    pieces.push([text.slice(runs[i].index + length, runs[end].index), text.slice(at, runs[i].index)]);
    at = runs[end].index + length;
    i = end;
  }
  pieces.push(['', text.slice(at)]);
  return pieces;
}

// Appends a text without code to `parent`.
function appendPlain(parent, text) {
  const pattern = /\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[([^[\]]+)\]\((https?:\/\/[^\s()[\]]+)\)/g;
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    parent.append(text.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[1]) parent.append(h('strong', {}, match[1]));
    if (match[2]) parent.append(h('em', {}, match[2]));
    if (match[3]) parent.append(h('a', {href: match[4], target: '_blank', rel: 'noopener noreferrer'}, match[3]));
  }
  parent.append(text.slice(at));
}

// Appends the inline parts of a line to `parent`.
function appendInline(parent, text) {
  for (const [code, plain] of splitCode(text)) {
    appendPlain(parent, plain);
    if (code) parent.append(h('code', {}, code.trim()));
  }
}

function inlineElement(tag, text) {
  const element = h(tag);
  appendInline(element, text);
  return element;
}

function codeBlock(language, text) {
  return h(
    'div',
    {class: 'code'},
    h(
      'div',
      {class: 'code-bar'},
      h('span', {}, language || 'text'),
      copyButton(() => text, 'Copy the code'),
    ),
    h('pre', {}, h('code', {}, text)),
  );
}

const cellsOf = line =>
  line
    .trim()
    .replace(/^\||\|$/g, '')
    .split('|')
    .map(cell => cell.trim());
const isRuler = line => /^\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?\s*$/.test(line) && line.includes('|');

// The list that begins at line `at`, with what is indented below its items: [element, next line].
function listFrom(lines, at) {
  const item = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
  const [, indent, mark] = lines[at].match(item);
  const ordered = /\d/.test(mark);
  const list = h(ordered ? 'ol' : 'ul');
  if (ordered) list.start = parseInt(mark, 10);
  while (at < lines.length) {
    const match = lines[at].match(item);
    if (match && match[1].length > indent.length && list.lastChild) {
      const [inner, next] = listFrom(lines, at);
      list.lastChild.append(inner);
      at = next;
    } else if (match && match[1].length === indent.length && /\d/.test(match[2]) === ordered) {
      list.append(inlineElement('li', match[3]));
      ++at;
    } else if (!match && /^\s+\S/.test(lines[at]) && list.lastChild) {
      list.lastChild.append(' ');
      appendInline(list.lastChild, lines[at].trim());
      ++at;
    } else if (!lines[at].trim() && item.test(lines[at + 1] || '')) {
      ++at;
    } else {
      break;
    }
  }
  return [list, at];
}

// Quotes within so many others are plain text.
const MAX_QUOTES = 8;

// The elements of a text, which is within so many quotes.
function markdown(text, quotes = 0) {
  const lines = text.split('\n'),
    blocks = [];
  let paragraph = [];
  const flush = () => {
    if (!paragraph.length) return;
    const element = h('p');
    paragraph.forEach((line, at) => {
      if (at) element.append(h('br'));
      appendInline(element, line);
    });
    blocks.push(element);
    paragraph = [];
  };
  for (let at = 0; at < lines.length;) {
    const line = lines[at];
    const fence = line.match(/^\s*(`{3,}|~{3,})\s*(\S*)/);
    const heading = line.match(/^(#{1,6})\s+(.*)$/);
    if (fence) {
      flush();
      const code = [];
      // A fence that is still open while the answer comes ends with the text.
      for (++at; at < lines.length && !lines[at].trim().startsWith(fence[1]); ++at) code.push(lines[at]);
      blocks.push(codeBlock(fence[2], code.join('\n')));
      ++at;
    } else if (heading) {
      flush();
      blocks.push(inlineElement('h' + Math.min(heading[1].length + 2, 6), heading[2]));
      ++at;
    } else if (/^\s*([-*+]|\d{1,9}[.)])\s+\S/.test(line)) {
      flush();
      const [list, next] = listFrom(lines, at);
      blocks.push(list);
      at = next;
    } else if (line.startsWith('>') && quotes < MAX_QUOTES) {
      flush();
      const quote = [];
      for (; at < lines.length && lines[at].startsWith('>'); ++at) quote.push(lines[at].replace(/^> ?/, ''));
      blocks.push(h('blockquote', {}, ...markdown(quote.join('\n'), quotes + 1)));
    } else if (line.includes('|') && isRuler(lines[at + 1] || '')) {
      flush();
      const head = h('tr', {}, ...cellsOf(line).map(cell => inlineElement('th', cell)));
      const body = h('tbody');
      for (at += 2; at < lines.length && lines[at].includes('|'); ++at) {
        body.append(h('tr', {}, ...cellsOf(lines[at]).map(cell => inlineElement('td', cell))));
      }
      blocks.push(h('div', {class: 'wide'}, h('table', {}, h('thead', {}, head), body)));
    } else if (/^\s*(-{3,}|\*{3,}|_{3,})\s*$/.test(line)) {
      flush();
      blocks.push(h('hr'));
      ++at;
    } else {
      if (line.trim()) paragraph.push(line);
      else flush();
      ++at;
    }
  }
  flush();
  return blocks;
}
