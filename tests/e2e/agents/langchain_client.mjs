// SPDX-License-Identifier: Apache-2.0
// @langchain/openai over Responses and @langchain/anthropic: whole, streamed, a tool's loop, a schema, errors.
import {ChatAnthropic} from '@langchain/anthropic';
import {HumanMessage, ToolMessage} from '@langchain/core/messages';
import {ChatOpenAI} from '@langchain/openai';
import {z} from 'zod';
import {ask, errorOf, tell} from './ask.mjs';

const options = {temperature: 0, maxTokens: ask.max_tokens, maxRetries: 0};
const makers = {
  responses: (more) => new ChatOpenAI({...options, model: ask.model, useResponsesApi: true, ...more}),
  messages: (more) => new ChatAnthropic({...options, model: ask.model, anthropicApiUrl: process.env.URL,
                                         apiKey: ask.key, ...more}),
};
const make = makers[process.env.API];
const usageOf = ({usage_metadata}) => [usage_metadata.input_tokens, usage_metadata.output_tokens];

const answer = await make().invoke(ask.question);
let whole;
for await (const chunk of await make().stream(ask.question)) whole = whole ? whole.concat(chunk) : chunk;
const {name, description, parameters} = ask.tool.function;
const withTool = make({maxTokens: 100}).bindTools([{name, description, schema: parameters}]);
const called = await withTool.invoke(ask.tool_question);
const [call] = called.tool_calls;
const answered = await make().bindTools([{name, description, schema: parameters}]).invoke([
  new HumanMessage(ask.tool_question), called, new ToolMessage({content: ask.tool_result, tool_call_id: call.id})]);
// Its jsonSchema writes the names of an enum into a description for Messages; a tool's schema goes as it is.
const method = process.env.API === 'messages' ? 'functionCalling' : 'jsonSchema';
const parsed = await make({maxTokens: 200}).withStructuredOutput(
    z.strictObject({name: z.enum(['Mira', 'Tom'])}), {method}).invoke(ask.question);

tell({
  chat: answer.text,
  streamed: whole.text,
  usage: usageOf(answer),
  streamed_usage: usageOf(whole),
  call: [call.name, call.args],
  answered: answered.text,
  parsed,
  long: (await make({model: ask.long_model}).invoke(ask.long_question)).text,
  errors: {
    too_long: await errorOf(make().invoke(ask.long_question)),
    model: await errorOf(make({model: 'another'}).invoke(ask.question)),
    key: await errorOf(make({apiKey: 'wrong'}).invoke(ask.question)),
  },
});
