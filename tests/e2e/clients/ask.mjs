// SPDX-License-Identifier: Apache-2.0
// What the clients ask, as base.py tells it, and how they tell what they got.
export const ask = JSON.parse(process.env.ASK);
ask.messages = [{role: 'user', content: ask.question}];
ask.long_messages = [{role: 'user', content: ask.long_question}];
ask.base_url = process.env.OPENAI_BASE_URL;
ask.key = process.env.OPENAI_API_KEY;

// The error that a call has to end with, as text with its class's name and code.
export async function errorOf(promise) {
  try {
    await promise;
  } catch (error) {
    return `${error.constructor.name} ${error.code ?? ''}: ${error.message} ${error.responseBody ?? ''}`;
  }
  throw new Error('no error');
}

export function tell(result) {
  console.log(JSON.stringify(result));
}
