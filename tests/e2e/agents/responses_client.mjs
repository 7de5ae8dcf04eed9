// SPDX-License-Identifier: Apache-2.0
// openai-node's Responses: whole, streamed in both ways, a tool's loop, a schema, errors, a stream that is left.
import OpenAI from 'openai';
import {zodTextFormat} from 'openai/helpers/zod';
import {z} from 'zod';
import {ask, errorOf, tell} from './ask.mjs';

const client = new OpenAI({maxRetries: 0});
const options = {model: ask.model, temperature: 0, max_output_tokens: ask.max_tokens};
const respond = (more) => client.responses.create({...options, input: ask.question, ...more});
const usageOf = ({usage}) => [usage.input_tokens, usage.output_tokens];

const answer = await respond({});
let text = '', number = 0, last;
for await (const event of await respond({stream: true})) {
  if (event.sequence_number !== number++) throw new Error(`${event.type} is ${event.sequence_number}`);
  if (event.type === 'response.output_text.delta') text += event.delta;
  last = event;
}
if (last.type !== 'response.completed' || last.response.output[0].content[0].text !== text) throw new Error(last.type);
const streamed = await client.responses.stream({...options, input: ask.question}).finalResponse();
const left = await respond({stream: true, input: ask.long_question, model: ask.long_model, max_output_tokens: 900});
for await (const event of left) break;
left.controller.abort();

const tools = [{type: 'function', ...ask.tool.function, strict: false}];
const history = [{role: 'user', content: ask.tool_question}];
const called = await respond({input: history, tools, max_output_tokens: 100});
const call = called.output.at(-1);
history.push(...called.output, {type: 'function_call_output', call_id: call.call_id, output: ask.tool_result});
const answered = await respond({input: history, tools});
const again = await client.responses.stream({...options, input: history.slice(0, 1), tools, max_output_tokens: 100})
    .finalResponse();
if (again.output.at(-1).arguments !== call.arguments) throw new Error(again.output.at(-1).arguments);

const parsed = await client.responses.parse({...options, input: ask.question, max_output_tokens: 200,
  text: {format: zodTextFormat(z.strictObject({name: z.enum(['Mira', 'Tom'])}), 'answer')}});

tell({
  chat: answer.output_text,
  streamed: streamed.output_text,
  usage: usageOf(answer),
  streamed_usage: usageOf(streamed),
  call: [call.name, JSON.parse(call.arguments)],
  answered: answered.output_text,
  parsed: parsed.output_parsed,
  long: (await respond({model: ask.long_model, input: ask.long_question})).output_text,
  errors: {
    too_long: await errorOf(respond({input: ask.long_question})),
    model: await errorOf(respond({model: 'another'})),
    key: await errorOf(client.withOptions({apiKey: 'wrong'}).responses.create({...options, input: 'x'})),
    stored: await errorOf(respond({store: true})),
  },
});
