// SPDX-License-Identifier: Apache-2.0
// Reads streams by the EventSource of the package `eventsource`, which keeps the id of the last event and comes again
// by itself, as a browser's does. Its `fetch` is the platform's, told to send a body.
//
// Reads a line of JSON for each stream, {number, url, headers, body}, and writes one when it has ended,
// {number, events, num_errors, status}: `status` is the one that ended it, 204 where all is told.
import {createInterface} from 'node:readline';
import {EventSource} from 'eventsource';

const AT_ONCE = Number(process.env.AT_ONCE);

// Tells its events of every type; the names of all are a protocol's matter.
class Source extends EventSource {
  events = [];
  num_errors = 0;

  constructor({url, headers, body}) {
    super(url, {fetch: (url, init) =>
        fetch(url, {...init, method: 'POST', body, headers: {...init.headers, ...headers}})});
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
    const source = new Source(stream);
    source.onerror = ({code}) => {
      ++source.num_errors;
      if (source.readyState !== EventSource.CLOSED) return;  // it comes again
      resolve({number: stream.number, events: source.events, num_errors: source.num_errors, status: code});
    };
  });
}

const streams = createInterface({input: process.stdin})[Symbol.asyncIterator]();
await Promise.all(Array.from({length: AT_ONCE}, async () => {
  for (let line = await streams.next(); !line.done; line = await streams.next()) {
    process.stdout.write(JSON.stringify(await read(JSON.parse(line.value))) + '\n');
  }
}));
