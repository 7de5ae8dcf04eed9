// SPDX-License-Identifier: Apache-2.0
// Reads streams by the EventSource of the package `eventsource`, which keeps the id of the last event and comes again
// by itself, as a browser's does. Its `fetch` is the platform's, told to send a body.
//
// Reads a line of JSON for each stream, {number, url, headers, body}, and writes one when it has ended,
// {number, events, num_errors, status, refusal}: `status` is the one that ended it, 204 where all is told; `refusal` is
// the text of an answer of any other but 200.
import {createInterface} from 'node:readline';
import {EventSource} from 'eventsource';

const AT_ONCE = Number(process.env.AT_ONCE);

// Tells its events of every type; the names of all are a protocol's matter.
class Source extends EventSource {
  events = [];
  num_errors = 0;

  // `refused` is called with the text of an answer that ends it early.
  constructor({url, headers, body}, refused) {
    super(url, {fetch: async (url, init) => {
      const response = await fetch(url, {...init, method: 'POST', body, headers: {...init.headers, ...headers}});
      if (response.status !== 200 && response.status !== 204) refused(await response.clone().text().catch(String));
      return response;
    }});
  }

  dispatchEvent(event) {
    if (event instanceof MessageEvent) {
      this.events.push({event: event.type, id: event.lastEventId, data: event.data});
    }
    return super.dispatchEvent(event);
  }
}

function read(stream) {
  return new Promise((resolve) => {
    let refusal = '';
    const source = new Source(stream, text => { refusal = text; });
    source.onerror = ({code}) => {
      ++source.num_errors;
      if (source.readyState !== EventSource.CLOSED) return;  // it comes again
      resolve({number: stream.number, events: source.events, num_errors: source.num_errors, status: code, refusal});
    };
  });
}

const streams = createInterface({input: process.stdin})[Symbol.asyncIterator]();
await Promise.all(Array.from({length: AT_ONCE}, async () => {
  for (let line = await streams.next(); !line.done; line = await streams.next()) {
    process.stdout.write(JSON.stringify(await read(JSON.parse(line.value))) + '\n');
  }
}));
