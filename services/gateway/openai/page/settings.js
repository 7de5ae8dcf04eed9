// SPDX-License-Identifier: Apache-2.0
'use strict';
// The panel of settings: fields of the conversation that is shown, the key, and the editor of tools.

class SettingsPanel {
  // `changed` is called with the settings after each change.
  constructor(store, changed) {
    this.store = store;
    this.changed = changed;
    this.fields = [...document.querySelectorAll('[data-setting]')];
    for (const field of this.fields) {
      field.addEventListener('input', () => {
        this.settings[field.dataset.setting] = field.value;
        this.check();
        changed(this.settings);
      });
    }
    byId('key').value = store.key;
    byId('key').addEventListener('input', () => {
      store.key = byId('key').value;
    });
    for (const [name, tool] of Object.entries(PAGE_TOOLS)) {
      byId('tool-buttons').append(this.toolButton(toolOf(name, tool), name));
    }
    byId('tool-buttons').append(this.toolButton(EXAMPLE_TOOL, 'an example'));
    byId('reset').addEventListener('click', () => {
      Object.assign(this.settings, DEFAULT_SETTINGS, {model: this.settings.model});
      this.show(this.settings);
      changed(this.settings);
    });
  }

  toolButton(tool, name) {
    return h(
      'button',
      {
        type: 'button',
        class: 'small',
        on: {
          click: () => {
            try {
              byId('tools').value = withTool(byId('tools').value, tool);
            } catch {
              return; // The check below the editor says why.
            }
            byId('tools').dispatchEvent(new Event('input'));
          },
        },
      },
      '+ ' + name,
    );
  }

  show(settings) {
    this.settings = settings;
    for (const field of this.fields) field.value = settings[field.dataset.setting];
    this.check();
  }

  // Says what is wrong with fields of JSON, and what tools there are.
  check() {
    const tell = (id, text, bad) => {
      byId(id).textContent = text;
      byId(id).classList.toggle('bad', bad);
    };
    try {
      const tools = this.settings.tools.trim() ? parseField('Tools', this.settings.tools) : [];
      if (!Array.isArray(tools)) throw new Error('Tools: an array is needed');
      const names = tools.map(tool => tool?.function?.name);
      if (names.includes(undefined)) throw new Error('Tools: each needs a function with a name');
      tell(
        'tools-told',
        names
          .map(name => name + (Object.hasOwn(PAGE_TOOLS, name) ? ' (the page answers)' : ' (you answer)'))
          .join(', '),
        false,
      );
    } catch (error) {
      tell('tools-told', error.message, true);
    }
    try {
      if (this.settings.extra.trim()) parseField('More members', this.settings.extra);
      tell('extra-told', '', false);
    } catch (error) {
      tell('extra-told', error.message, true);
    }
    byId('completion-note').hidden = this.settings.mode === 'chat';
  }

  // Offers the models; the one that is chosen stays.
  showModels(names) {
    const select = byId('model');
    const offered = [...select.options].map(option => option.value);
    if (names.join('\n') !== offered.join('\n')) {
      select.replaceChildren(...names.map(name => h('option', {value: name}, name)));
    }
    if (!this.settings) return;
    if (!names.includes(this.settings.model)) this.settings.model = names[0] || '';
    select.value = this.settings.model;
  }
}
