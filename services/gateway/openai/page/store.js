// SPDX-License-Identifier: Apache-2.0
'use strict';
// What the page keeps between visits, in localStorage: conversations, and the settings with which a new one begins. The
// key is kept for the tab alone.

const NUMBERS = [
  'max_tokens',
  'temperature',
  'top_p',
  'top_k',
  'min_p',
  'presence_penalty',
  'frequency_penalty',
  'repetition_penalty',
  'seed',
];

// Values are those of the fields: text, and '' for what is not sent.
const DEFAULT_SETTINGS = {
  model: '',
  mode: 'chat',
  system: '',
  reasoning_effort: '',
  stop: '',
  extra: '',
  tools: '',
  max_tokens: '',
  temperature: '',
  top_p: '',
  top_k: '',
  min_p: '',
  presence_penalty: '',
  frequency_penalty: '',
  repetition_penalty: '',
  seed: '',
};

class Store {
  constructor(storage = localStorage, session = sessionStorage) {
    this.storage = storage;
    this.session = session;
    this.onFull = () => {};
    const kept = this.read();
    this.conversations = kept.conversations;
    this.settings = {...DEFAULT_SETTINGS, ...kept.settings};
    this.look = {theme: 'auto', panel: '', ...kept.look};
  }

  // What storage has. What cannot be read is of another program.
  read() {
    let kept = {};
    try {
      kept = JSON.parse(this.storage.getItem('continuo') || '{}') || {};
    } catch {
      // Nothing is kept, then.
    }
    const all = Array.isArray(kept.conversations) ? kept.conversations : [];
    const conversations = all.filter(conversation => conversation && Array.isArray(conversation.messages));
    for (const conversation of conversations) {
      conversation.settings = {...DEFAULT_SETTINGS, ...conversation.settings};
    }
    return {...kept, conversations};
  }

  // Another tab has written: takes its conversations, but for those in use here.
  takeOthers(inUse) {
    const mine = this.conversations.filter(conversation => inUse.has(conversation));
    const ids = new Set(mine.map(conversation => conversation.id));
    this.conversations = [...mine, ...this.read().conversations.filter(conversation => !ids.has(conversation.id))];
    this.conversations.sort((a, b) => b.updated - a.updated);
  }

  get key() {
    return this.session.getItem('continuo.key') || '';
  }
  set key(key) {
    this.session.setItem('continuo.key', key);
  }

  // A conversation that is kept from its first message on.
  create() {
    const id = Date.now().toString(36) + Math.random().toString(36).slice(2, 8);
    return {id, title: '', updated: Date.now(), settings: {...this.settings}, messages: []};
  }

  keep(conversation) {
    conversation.updated = Date.now();
    this.conversations = [conversation, ...this.conversations.filter(other => other !== conversation)];
    this.save();
  }

  remove(conversation) {
    this.conversations = this.conversations.filter(other => other !== conversation);
    this.save();
  }

  removeAll() {
    this.conversations = [];
    this.save();
  }

  save() {
    const {conversations, settings, look} = this;
    try {
      this.storage.setItem('continuo', JSON.stringify({conversations, settings, look}));
    } catch {
      this.onFull();
    }
  }
}

function titleOf(conversation) {
  const first = conversation.messages.find(message => message.role === 'user');
  const title = conversation.title || (first ? first.content : '');
  return title.trim().replace(/\s+/g, ' ').slice(0, 80) || 'New conversation';
}

// The calls of the last answer that have no result yet.
function openCalls(messages) {
  const at = messages.findLastIndex(message => message.role === 'assistant');
  if (at < 0) return [];
  const answered = new Set(messages.slice(at + 1).map(message => message.tool_call_id));
  return (messages[at].tool_calls || []).filter(call => !answered.has(call.id));
}

// The messages as the API has them. Thoughts go back only within a turn of tools, and answers that failed without a
// word do not.
function messagesOf(conversation) {
  const {messages, settings} = conversation;
  const turn = messages.findLastIndex(message => message.role === 'user');
  const sent = settings.system.trim() ? [{role: 'system', content: settings.system}] : [];
  messages.forEach((message, at) => {
    if (message.role === 'tool') {
      sent.push({role: 'tool', tool_call_id: message.tool_call_id, content: message.content});
    } else if (message.role === 'assistant') {
      const calls = message.tool_calls || [];
      if (!message.content && !calls.length) return;
      const answer = {role: 'assistant', content: message.content};
      if (message.reasoning && at > turn) answer.reasoning_content = message.reasoning;
      if (calls.length) answer.tool_calls = calls;
      sent.push(answer);
    } else {
      sent.push({role: message.role, content: message.content});
    }
  });
  return sent;
}

// The request of a conversation: its path and its body. Throws where a field is no JSON, with the field's name.
function requestOf(conversation) {
  const {settings} = conversation;
  const chat = settings.mode === 'chat';
  const body = {};
  if (settings.model) body.model = settings.model;
  if (chat) {
    body.messages = messagesOf(conversation);
  } else {
    const last = conversation.messages.findLast(message => message.role === 'user');
    body.prompt = last ? last.content : '';
  }
  for (const name of NUMBERS) {
    if (settings[name] !== '' && Number.isFinite(Number(settings[name]))) body[name] = Number(settings[name]);
  }
  const stop = settings.stop.split('\n').filter(line => line !== '');
  if (stop.length) body.stop = stop;
  if (chat && settings.reasoning_effort) body.reasoning_effort = settings.reasoning_effort;
  if (chat && settings.tools.trim()) {
    const tools = parseField('Tools', settings.tools);
    if (!Array.isArray(tools)) throw new Error('Tools: an array is needed');
    if (tools.length) body.tools = tools;
  }
  if (settings.extra.trim()) {
    const extra = parseField('More members', settings.extra);
    if (extra === null || typeof extra !== 'object' || Array.isArray(extra)) {
      throw new Error('More members: an object is needed');
    }
    Object.assign(body, extra);
  }
  return {path: chat ? 'v1/chat/completions' : 'v1/completions', body};
}

function parseField(name, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(name + ': ' + error.message);
  }
}
