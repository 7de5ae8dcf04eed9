// SPDX-License-Identifier: Apache-2.0
// openai-node: runTools goes round by itself, streamed too; zod's schemas for arguments and answers.
import OpenAI from 'openai';
import {zodFunction, zodResponseFormat} from 'openai/helpers/zod';
import {z} from 'zod';
import {ask, tell} from './ask.mjs';
import {Answer} from './answer.mjs';

const client = new OpenAI({maxRetries: 0});
const options = {model: ask.model, temperature: 0, max_tokens: 400};
const messages = [{role: 'user', content: ask.tool_question}];
const calls = [];
const findPerson = (args) => {
  calls.push(['find_person', args]);
  return ask.tool_result;
};

const answered = await client.chat.completions
    .runTools({...options, messages, tools: [
      {type: 'function', function: {...ask.tool.function, function: findPerson, parse: JSON.parse}}]})
    .finalContent();

// A strict tool.
const runner = client.chat.completions.runTools({...options, messages, stream: true, tools: [zodFunction(
    {name: 'find_person', parameters: z.object({name: z.string()}), function: findPerson})]});
let text = '';
for await (const chunk of runner) text += chunk.choices[0]?.delta?.content ?? '';

const format = {...options, messages: ask.messages, response_format: zodResponseFormat(Answer, 'answer')};
const parsed = await client.chat.completions.parse(format);
const streamed = await client.chat.completions.stream(format).finalChatCompletion();

tell({
  call: calls[0], answered, streamed_call: calls[1], streamed_answered: text,
  parsed: parsed.choices[0].message.parsed, streamed_parsed: streamed.choices[0].message.parsed, errors: {},
});
