// SPDX-License-Identifier: Apache-2.0
// @langchain/openai: chat, streams, batches, the legacy completions, errors, a stream that is left.
import {ChatOpenAI, OpenAI} from '@langchain/openai';
import {ask, errorOf, tell} from './ask.mjs';

const options = {temperature: 0, maxTokens: ask.max_tokens, maxRetries: 0};
const chat = (more) => new ChatOpenAI({...options, model: ask.model, ...more});
const usageOf = (message) =>
    [message.usage_metadata.input_tokens, message.usage_metadata.output_tokens];

const answer = await chat().invoke(ask.question);
let whole;
for await (const chunk of await chat().stream(ask.question)) whole = whole ? whole.concat(chunk) : chunk;
const batch = await chat().batch([ask.question, ask.question]);
if (batch.some((message) => message.content !== answer.content)) throw new Error('batch');
const left = chat({maxTokens: 900, modelKwargs: {ignore_eos: true}});
for await (const chunk of await left.stream(ask.question)) break;

tell({
  chat: answer.content,
  streamed: whole.content,
  usage: usageOf(answer),
  streamed_usage: usageOf(whole),
  stopped: (await chat().invoke(ask.question, {stop: [ask.stop]})).content,
  completion: await new OpenAI({...options, model: ask.model}).invoke(ask.prompt),
  long: (await chat({model: ask.long_model}).invoke(ask.long_question)).content,
  errors: {
    too_long: await errorOf(chat().invoke(ask.long_question)),
    model: await errorOf(chat({model: 'another'}).invoke(ask.question)),
    key: await errorOf(chat({apiKey: 'wrong'}).invoke(ask.question)),
    path: await errorOf(chat({configuration: {baseURL: ask.base_url + '/v2'}}).invoke(ask.question)),
  },
});
