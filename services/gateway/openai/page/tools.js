// SPDX-License-Identifier: Apache-2.0
'use strict';
// Tools that the page itself computes, and those that a person answers.

// Computes + - * / % ^, parentheses, a few functions and constants. Throws where the text is something else.
function calculate(text) {
  const functions = {
    sqrt: Math.sqrt,
    abs: Math.abs,
    round: Math.round,
    floor: Math.floor,
    ceil: Math.ceil,
    ln: Math.log,
    log10: Math.log10,
    exp: Math.exp,
    sin: Math.sin,
    cos: Math.cos,
    tan: Math.tan,
  };
  const constants = {pi: Math.PI, e: Math.E};
  const tokens = text.replaceAll('**', '^').match(/\d+\.?\d*(?:e[+-]?\d+)?|\.\d+|[a-z]\w*|\S/gi) || [];
  let at = 0;
  const take = expected => {
    if (tokens[at] !== expected) throw new Error(`"${expected}" is missing before "${tokens[at] ?? 'the end'}"`);
    ++at;
  };
  const value = () => {
    const token = tokens[at++];
    if (token === '-') return -power();
    if (token === '+') return power();
    if (token === '(') {
      const inner = sum();
      take(')');
      return inner;
    }
    if (/^[\d.]/.test(token ?? '')) return Number(token);
    const name = (token ?? '').toLowerCase();
    if (Object.hasOwn(constants, name)) return constants[name];
    if (!Object.hasOwn(functions, name)) throw new Error(`"${token ?? 'the end'}" is not understood`);
    take('(');
    const argument = sum();
    take(')');
    return functions[name](argument);
  };
  const power = () => {
    const base = value();
    if (tokens[at] !== '^') return base;
    ++at;
    return base ** power();
  };
  const product = () => {
    let result = power();
    for (;;) {
      if (tokens[at] === '*') (++at, (result *= power()));
      else if (tokens[at] === '/') (++at, (result /= power()));
      else if (tokens[at] === '%') (++at, (result %= power()));
      else return result;
    }
  };
  const sum = () => {
    let result = product();
    for (;;) {
      if (tokens[at] === '+') (++at, (result += product()));
      else if (tokens[at] === '-') (++at, (result -= product()));
      else return result;
    }
  };
  const result = sum();
  if (at < tokens.length) throw new Error(`"${tokens[at]}" is not understood`);
  return result;
}

// By name: what a model is told, and the function that answers its arguments.
const PAGE_TOOLS = {
  calculate: {
    description: 'Computes an arithmetic expression.',
    parameters: {
      type: 'object',
      properties: {expression: {type: 'string', description: 'such as (2 + 3) * 4 ^ 2'}},
      required: ['expression'],
    },
    run: ({expression}) => String(calculate(String(expression))),
  },
  current_time: {
    description: 'Tells the date and time.',
    parameters: {type: 'object', properties: {time_zone: {type: 'string', description: 'such as Europe/Lisbon'}}},
    run: ({time_zone}) =>
      new Date().toLocaleString('en-GB', {
        dateStyle: 'full',
        timeStyle: 'long',
        timeZone: time_zone || undefined,
      }),
  },
};

// A tool as the API has it.
function toolOf(name, {description, parameters}) {
  return {type: 'function', function: {name, description, parameters}};
}

const EXAMPLE_TOOL = toolOf('find_person', {
  description: 'Tells where somebody is.',
  parameters: {type: 'object', properties: {name: {type: 'string'}}, required: ['name']},
});

// The page's answer to a call, or null where a person has to give it. Errors are answers, too: models mend them.
function pageResult(call) {
  const tool = Object.hasOwn(PAGE_TOOLS, call.function.name) ? PAGE_TOOLS[call.function.name] : null;
  if (!tool) return null;
  try {
    return tool.run(JSON.parse(call.function.arguments || '{}'));
  } catch (error) {
    return 'Error: ' + error.message;
  }
}

// The text of the editor with one more tool. Throws where the text is no array of JSON.
function withTool(text, tool) {
  const tools = text.trim() ? JSON.parse(text) : [];
  if (!Array.isArray(tools)) throw new Error('an array is needed');
  const others = tools.filter(other => other?.function?.name !== tool.function.name);
  return JSON.stringify([...others, tool], null, 2);
}
