// SPDX-License-Identifier: Apache-2.0
// @anthropic-ai/sdk: whole, streamed, a tool's loop by hand and by its runner, a schema, counts, errors, a stream that
// is left.
import Anthropic from '@anthropic-ai/sdk';
import {betaZodTool} from '@anthropic-ai/sdk/helpers/beta/zod';
import {zodOutputFormat} from '@anthropic-ai/sdk/helpers/zod';
import {z} from 'zod';
import {ask, errorOf, tell} from './ask.mjs';

const client = new Anthropic({baseURL: process.env.URL, apiKey: ask.key, maxRetries: 0});
const options = {model: ask.model, temperature: 0, max_tokens: ask.max_tokens};
const said = (content) => [{role: 'user', content}];
const create = (more) => client.messages.create({...options, messages: ask.messages, ...more});
const textOf = (message) => message.content.map((block) => block.text).join('');
const usageOf = ({usage}) => [usage.input_tokens + usage.cache_read_input_tokens, usage.output_tokens];

const answer = await create({});
const stream = client.messages.stream({...options, messages: ask.messages});
let text = '';
stream.on('text', (delta) => text += delta);
const streamed = await stream.finalMessage();
if (text !== textOf(streamed)) throw new Error(text);
const counted = await client.messages.countTokens({model: ask.model, messages: ask.messages});
if (counted.input_tokens !== usageOf(answer)[0]) throw new Error(counted.input_tokens);
const left = await create({stream: true, model: ask.long_model, messages: ask.long_messages, max_tokens: 900});
for await (const event of left) break;
left.controller.abort();

const {name, description, parameters} = ask.tool.function;
const tools = [{name, description, input_schema: parameters}];
const history = said(ask.tool_question);
const called = await create({messages: history, tools, max_tokens: 100});
const call = called.content.at(-1);
history.push({role: 'assistant', content: called.content},
             {role: 'user', content: [{type: 'tool_result', tool_use_id: call.id, content: ask.tool_result}]});
const answered = await create({messages: history, tools});
const runs = [];
const run = await client.beta.messages.toolRunner({...options, max_tokens: 100, messages: said(ask.tool_question),
  tools: [betaZodTool({name, description, inputSchema: z.object({name: z.string()}),
                       run: (input) => { runs.push(input); return ask.tool_result; }})]});
if (!textOf(run) || JSON.stringify(runs) !== JSON.stringify([call.input])) throw new Error(JSON.stringify(runs));

const parsed = await client.messages.parse({...options, messages: ask.messages, max_tokens: 200,
  output_config: {format: zodOutputFormat(z.strictObject({name: z.enum(['Mira', 'Tom'])}))}});

tell({
  chat: textOf(answer),
  streamed: textOf(streamed),
  usage: usageOf(answer),
  streamed_usage: usageOf(streamed),
  stopped: textOf(await create({stop_sequences: [ask.stop]})),
  call: [call.name, call.input],
  answered: textOf(answered),
  parsed: parsed.parsed_output,
  long: textOf(await create({model: ask.long_model, messages: ask.long_messages})),
  errors: {
    too_long: await errorOf(create({messages: ask.long_messages})),
    model: await errorOf(create({model: 'another'})),
    key: await errorOf(new Anthropic({baseURL: process.env.URL, apiKey: 'wrong', maxRetries: 0}).models.list()),
    path: await errorOf(client.messages.batches.list()),
  },
});
