// SPDX-License-Identifier: Apache-2.0
// A later major version of openai-node than that of openai_node.js.
import OpenAI from 'openai';
import {ask, errorOf, tell} from './ask.mjs';

const client = new OpenAI({maxRetries: 0});
const options = {model: ask.model, temperature: 0, max_tokens: ask.max_tokens};
const chat = (more) => client.chat.completions.create({...options, messages: ask.messages, ...more});
const usageOf = (usage) => [usage.prompt_tokens, usage.completion_tokens];

const answer = await chat({});
let streamed = '', usage;
for await (const chunk of await chat({stream: true, stream_options: {include_usage: true}})) {
  streamed += chunk.choices[0]?.delta?.content ?? '';
  usage = chunk.usage ?? usage;
}
const left = await chat({stream: true, max_tokens: 900, ignore_eos: true});
for await (const chunk of left) break;
left.controller.abort();

const controller = new AbortController();
const aborted = errorOf(client.chat.completions.create(
    {...options, messages: ask.messages, n: 8, max_tokens: 900, ignore_eos: true},
    {signal: controller.signal}));
setImmediate(() => controller.abort());

tell({
  chat: answer.choices[0].message.content,
  streamed,
  usage: usageOf(answer.usage),
  streamed_usage: usageOf(usage),
  stopped: (await chat({stop: [ask.stop]})).choices[0].message.content,
  completion: (await client.completions.create({...options, prompt: ask.prompt})).choices[0].text,
  long: (await chat({model: ask.long_model, messages: ask.long_messages})).choices[0].message.content,
  models: (await client.models.list()).data.map((model) => model.id).sort(),
  errors: {
    too_long: await errorOf(chat({messages: ask.long_messages})),
    model: await errorOf(chat({model: 'another'})),
    key: await errorOf(client.withOptions({apiKey: 'wrong'}).models.list()),
    path: await errorOf(client.moderations.create({input: ask.question})),
    aborted: await aborted,
  },
});
