// SPDX-License-Identifier: Apache-2.0
// The checks of openai_sdk_test.py with the Node SDK; prints one JSON object.
const OpenAI = require('openai').default ?? require('openai');

const ask = {
  model: 'demo-model',
  messages: [{
    role: 'user',
    content: 'Mira lives in Oslo and plays the violin. Where does Mira live?',
  }],
  temperature: 0,
  max_tokens: 20,
};

async function main() {
  const client = new OpenAI({maxRetries: 0});
  const result = {streamed: ''};
  result.whole = (await client.chat.completions.create(ask)).choices[0].message.content;
  const stream = await client.chat.completions.create(
      {...ask, stream: true, stream_options: {include_usage: true}});
  for await (const chunk of stream) {
    result.streamed += chunk.choices[0]?.delta?.content ?? '';
    result.usage = chunk.usage ?? result.usage;
  }
  result.models = (await client.models.list()).data.map((model) => model.id);
  try {
    await client.chat.completions.create({...ask, temperature: -1});
  } catch (error) {
    result.error = {name: error.constructor.name, status: error.status, param: error.param};
  }
  // A stream that is left after its first chunk.
  const left = await client.completions.create(
      {model: ask.model, prompt: 'Mira lives', max_tokens: 900, ignore_eos: true, stream: true});
  for await (const chunk of left) break;
  left.controller.abort();
  console.log(JSON.stringify(result));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
