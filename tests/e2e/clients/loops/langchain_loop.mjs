// SPDX-License-Identifier: Apache-2.0
// @langchain/openai: bindTools with a tool that runs, and withStructuredOutput.
import {HumanMessage} from '@langchain/core/messages';
import {tool} from '@langchain/core/tools';
import {ChatOpenAI} from '@langchain/openai';
import {z} from 'zod';
import {ask, tell} from './ask.mjs';
import {Answer} from './answer.mjs';

const chat = new ChatOpenAI({model: ask.model, temperature: 0, maxTokens: 400, maxRetries: 0,
                             configuration: {baseURL: ask.base_url}});
const findPerson = tool(() => ask.tool_result, {
  name: 'find_person', description: 'Tells where somebody is.', schema: z.object({name: z.string()})});

// Goes round until there is an answer.
async function loop(send) {
  const messages = [new HumanMessage(ask.tool_question)];
  const calls = [];
  for (;;) {
    const message = await send(chat.bindTools([findPerson]), messages);
    messages.push(message);
    if (!message.tool_calls?.length) return {call: calls[0], answered: message.content};
    for (const call of message.tool_calls) {
      calls.push([call.name, call.args]);
      messages.push(await findPerson.invoke(call));
    }
  }
}

const whole = await loop((model, messages) => model.invoke(messages));
const streamed = await loop(async (model, messages) => {
  let message;
  for await (const chunk of await model.stream(messages)) message = message ? message.concat(chunk) : chunk;
  return message;
});
const byCall = await chat.withStructuredOutput(Answer, {method: 'functionCalling'}).invoke(ask.question);
Answer.parse(byCall);

tell({
  ...whole, streamed_call: streamed.call, streamed_answered: streamed.answered,
  parsed: await chat.withStructuredOutput(Answer, {method: 'jsonSchema'}).invoke(ask.question), errors: {},
});
