// SPDX-License-Identifier: Apache-2.0
// Vercel's ai with @ai-sdk/openai-compatible: text, streams, completions, errors, an abort.
import {createOpenAICompatible} from '@ai-sdk/openai-compatible';
import {generateText, streamText} from 'ai';
import {ask, errorOf, tell} from './ask.mjs';

const provider = createOpenAICompatible(
    {name: 'continuo', baseURL: ask.base_url, apiKey: ask.key, includeUsage: true});
const options = {
  model: provider(ask.model),
  messages: ask.messages,
  temperature: 0,
  maxOutputTokens: ask.max_tokens,
  maxRetries: 0,
};
const textOf = async (more) => (await generateText({...options, ...more})).text;
const usageOf = (usage) => [usage.inputTokens, usage.outputTokens];

const answer = await generateText(options);
const stream = streamText(options);
let streamed = '';
for await (const delta of stream.textStream) streamed += delta;

const controller = new AbortController();
const left = streamText({
  ...options,
  maxOutputTokens: 900,
  providerOptions: {continuo: {ignore_eos: true}},
  abortSignal: controller.signal,
});
for await (const delta of left.textStream) {
  controller.abort();
  break;
}

const other = (options) =>
    createOpenAICompatible({name: 'continuo', baseURL: ask.base_url, apiKey: ask.key, ...options})(ask.model);
tell({
  chat: answer.text,
  streamed,
  usage: usageOf(answer.usage),
  streamed_usage: usageOf(await stream.usage),
  stopped: await textOf({stopSequences: [ask.stop]}),
  conversation: await textOf(
      {model: provider.completionModel(ask.model), messages: undefined, prompt: ask.prompt}),
  long: await textOf({model: provider(ask.long_model), messages: ask.long_messages}),
  errors: {
    too_long: await errorOf(generateText({...options, messages: ask.long_messages})),
    model: await errorOf(generateText({...options, model: provider('another')})),
    path: await errorOf(generateText({...options, model: other({baseURL: ask.base_url + '/v2'})})),
    key: await errorOf(generateText({...options, model: other({apiKey: 'wrong'})})),
  },
});
