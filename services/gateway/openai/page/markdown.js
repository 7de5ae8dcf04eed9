// SPDX-License-Identifier: Apache-2.0
'use strict';
// Shows answers: headings, lists, tables, quotes, code, emphasis and links. Builds elements, so no text of a model
// becomes markup.

// Appends the inline parts of a line to `parent`.
function appendInline(parent, text) {
  const pattern = /(`+)([^]*?[^`])\1(?!`)|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[([^\]]+)\]\((https?:\/\/[^\s)]+)\)/g;
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    parent.append(text.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[1]) parent.append(h('code', {}, match[2].trim()));
    if (match[3]) parent.append(h('strong', {}, match[3]));
    if (match[4]) parent.append(h('em', {}, match[4]));
    if (match[5]) parent.append(h('a', {href: match[6], target: '_blank', rel: 'noopener noreferrer'}, match[5]));
  }
  parent.append(text.slice(at));
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

// The elements of a text.
function markdown(text) {
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
    } else if (line.startsWith('>')) {
      flush();
      const quote = [];
      for (; at < lines.length && lines[at].startsWith('>'); ++at) quote.push(lines[at].replace(/^> ?/, ''));
      blocks.push(h('blockquote', {}, ...markdown(quote.join('\n'))));
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
