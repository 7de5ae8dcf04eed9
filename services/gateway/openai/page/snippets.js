// SPDX-License-Identifier: Apache-2.0
'use strict';
// A request as commands to copy. The key is a variable of the environment, so that it is not copied with them.

function curlOf({path, body}, base, hasKey) {
  const json = JSON.stringify({...body, stream: true}, null, 2).replaceAll("'", "'\\''");
  const key = hasKey ? ' \\\n  -H "Authorization: Bearer $CONTINUO_KEY"' : '';
  return `curl -N ${base}${path} \\\n  -H 'Content-Type: application/json'${key} \\\n  -d '${json}'\n`;
}

// A value as Python writes it.
function pythonOf(value, indent = '') {
  if (value === null || value === undefined) return 'None';
  if (value === true) return 'True';
  if (value === false) return 'False';
  if (typeof value !== 'object') return JSON.stringify(value);
  const more = indent + '    ';
  const [open, close] = Array.isArray(value) ? ['[', ']'] : ['{', '}'];
  const items = Array.isArray(value)
    ? value.map(item => pythonOf(item, more))
    : Object.entries(value).map(([name, item]) => JSON.stringify(name) + ': ' + pythonOf(item, more));
  return items.length ? `${open}\n${items.map(item => more + item + ',\n').join('')}${indent}${close}` : open + close;
}

// What OpenAI's client knows by name; the rest goes into extra_body.
const PYTHON_KNOWS = new Set([
  'model',
  'messages',
  'prompt',
  'max_tokens',
  'temperature',
  'top_p',
  'presence_penalty',
  'frequency_penalty',
  'seed',
  'stop',
  'tools',
  'tool_choice',
  'reasoning_effort',
  'response_format',
  'logprobs',
  'top_logprobs',
  'n',
  'logit_bias',
  'parallel_tool_calls',
]);

function pythonSnippetOf({path, body}, base, hasKey) {
  const known = {model: ''},
    extra = {};
  for (const [name, value] of Object.entries(body)) (PYTHON_KNOWS.has(name) ? known : extra)[name] = value;
  if (Object.keys(extra).length) known.extra_body = extra;
  const chat = path.includes('chat');
  const given = Object.entries(known)
    .map(([name, value]) => `    ${name}=${pythonOf(value, '    ')},\n`)
    .join('');
  return `${hasKey ? 'import os\n\n' : ''}from openai import OpenAI

client = OpenAI(base_url="${base}v1", api_key=${hasKey ? 'os.environ["CONTINUO_KEY"]' : '"none"'})
stream = client.${chat ? 'chat.completions' : 'completions'}.create(
${given}    stream=True,
)
for event in stream:
    if event.choices:
        print(event.choices[0].${chat ? 'delta.content' : 'text'} or "", end="", flush=True)
print()
`;
}
