// SPDX-License-Identifier: Apache-2.0
// Vercel's ai: generateText and streamText go round by themselves; generateObject and streamObject.
import {createOpenAICompatible} from '@ai-sdk/openai-compatible';
import {generateObject, generateText, stepCountIs, streamObject, streamText, tool} from 'ai';
import {z} from 'zod';
import {ask, tell} from './ask.mjs';
import {Answer} from './answer.mjs';

const provider = createOpenAICompatible(
    {name: 'continuo', baseURL: ask.base_url, apiKey: ask.key, supportsStructuredOutputs: true});
const options = {model: provider(ask.model), temperature: 0, maxOutputTokens: 400, maxRetries: 0};
const calls = [];
const tools = {find_person: tool({
  description: 'Tells where somebody is.', inputSchema: z.object({name: z.string()}),
  execute: async (args) => {
    calls.push(['find_person', args]);
    return ask.tool_result;
  }})};
const loop = {...options, tools, prompt: ask.tool_question, stopWhen: stepCountIs(3)};

const whole = await generateText(loop);
let text = '';
for await (const piece of streamText(loop).textStream) text += piece;

const object = {...options, schema: Answer, prompt: ask.question};
const streamed = streamObject(object);
for await (const part of streamed.partialObjectStream) {
  if (typeof part !== 'object') throw new Error('a part is no object');
}

tell({
  call: calls[0], answered: whole.text, streamed_call: calls[1], streamed_answered: text,
  parsed: (await generateObject(object)).object, streamed_parsed: await streamed.object, errors: {},
});
