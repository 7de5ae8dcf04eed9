// SPDX-License-Identifier: Apache-2.0
'use strict';
// The gateway as the page sees it. Addresses are relative to the page's own, so that it also works below a prefix.

class ApiError extends Error {
  constructor(message, status = 0, code = null) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// Splits a stream into server-sent events as it comes.
class EventParser {
  rest = '';

  // The events that are complete with `text`: {event, data, id}.
  feed(text) {
    this.rest += text.replace(/\r/g, '');
    const parts = this.rest.split('\n\n');
    this.rest = parts.pop();
    const events = [];
    for (const part of parts) {
      let event = 'message',
        id = '';
      const data = [];
      for (const line of part.split('\n')) {
        const [, name, value] = line.match(/^([^:]*):? ?([^]*)$/);
        if (name === 'event') event = value;
        if (name === 'data') data.push(value);
        if (name === 'id') id = value;
      }
      if (data.length) events.push({event, data: data.join('\n'), id});
    }
    return events;
  }
}

// How often in a row a stream is asked for again that brought nothing more, and how long that waits at first, in ms.
const MAX_TRIES = 10,
  FIRST_PAUSE = 100;

function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener('abort', () => {
      clearTimeout(timer);
      reject(signal.reason);
    }, {once: true});
  });
}

class Api {
  constructor(keyOf) {
    this.keyOf = keyOf;
  }

  headers() {
    const key = this.keyOf().trim();
    return key ? {Authorization: 'Bearer ' + key} : {};
  }

  async fetch(path, {body, signal, lastId} = {}) {
    const options = {headers: this.headers(), signal, cache: 'no-store'};
    if (body !== undefined) {
      options.method = 'POST';
      options.headers['Content-Type'] = 'application/json';
      options.body = JSON.stringify(body);
    }
    if (lastId) options.headers['Last-Event-ID'] = lastId;
    let response;
    try {
      response = await fetch(new URL(path, document.baseURI), options);
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new ApiError('the gateway cannot be reached');
    }
    if (response.ok) return response;
    let error = {};
    try {
      error = (await response.json()).error || {};
    } catch {
      // Something between has answered.
    }
    throw new ApiError(error.message || 'the gateway answered ' + response.status, response.status, error.code);
  }

  async json(path, options) {
    return (await this.fetch(path, options)).json();
  }

  // The events of a stream.
  async *events(path, options) {
    const response = await this.fetch(path, options);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new EventParser();
    try {
      for (;;) {
        let piece;
        try {
          piece = await reader.read();
        } catch (error) {
          if (error.name === 'AbortError') throw error;
          throw new ApiError('the connection was lost');
        }
        if (piece.done) return;
        yield* parser.feed(piece.value);
      }
    } finally {
      reader.cancel().catch(() => {});
    }
  }

  // The events of a stream that ends with [DONE]. Where its connection is lost it goes on behind the last event, at
  // whichever gateway answers.
  async *wholeStream(path, options) {
    let lastId = '';
    for (let tries = 0; ; ++tries) {
      let lost = new ApiError('the stream ended before the answer did');
      try {
        for await (const event of this.events(path, {...options, lastId})) {
          if (event.id) {
            lastId = event.id;
            tries = 0;
          }
          yield event;
          if (event.data === '[DONE]') return;
        }
      } catch (error) {
        lost = error;
      }
      // A gateway's own refusal ends the stream. A proxy that finds no gateway does not.
      const isLost = lost instanceof ApiError && [0, 502, 503, 504].includes(lost.status);
      if (!isLost || !lastId || tries >= MAX_TRIES) throw lost;
      await pause(FIRST_PAUSE * 2 ** Math.min(tries, 5), options.signal);
    }
  }

  // Streams an answer into `message`, an assistant's, and calls `changed` after each piece.
  async answer({path, body}, message, signal, changed) {
    const begin = performance.now();
    const since = () => (performance.now() - begin) / 1000;
    const stats = (message.stats = {});
    const streamed = {...body, stream: true, stream_options: {include_usage: true}};
    for await (const {data} of this.wholeStream(path, {body: streamed, signal})) {
      if (data === '[DONE]') break;
      const event = JSON.parse(data);
      if (event.error) throw new ApiError(event.error.message, 0, event.error.code);
      if (event.id) message.request = event.id;
      if (event.usage) {
        stats.prompt = event.usage.prompt_tokens;
        stats.cached = event.usage.prompt_tokens_details?.cached_tokens || 0;
        stats.generated = event.usage.completion_tokens;
      }
      for (const choice of event.choices || []) {
        if (choice.index) continue; // of n answers one is shown
        this.take(choice.delta || {content: choice.text}, message);
        stats.finish = choice.finish_reason || stats.finish;
      }
      if (stats.first === undefined && (message.content || message.reasoning || message.tool_calls))
        stats.first = since();
      stats.seconds = since();
      changed();
    }
  }

  take(delta, message) {
    if (delta.content) message.content += delta.content;
    if (delta.reasoning_content) message.reasoning = (message.reasoning || '') + delta.reasoning_content;
    for (const piece of delta.tool_calls || []) {
      const calls = (message.tool_calls ||= []);
      const call = (calls[piece.index] ||= {id: piece.id, type: 'function', function: {name: '', arguments: ''}});
      call.function.name ||= piece.function?.name || '';
      call.function.arguments += piece.function?.arguments || '';
    }
  }
}
