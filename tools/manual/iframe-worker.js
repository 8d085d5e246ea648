// Runs the search of the manual when its pages are opened from a folder.
//
// A browser starts no worker from a `file:` URL. This class runs the worker's script in a hidden
// frame instead. The frame has the origin of the page, so both sides can call each other. The name
// of this file contains "iframe-worker": otherwise the plug-in `offline` adds a script of another
// host.
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #waiting = [];
    #inside = null;

    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!doctype html><title>search</title>";
      frame.addEventListener("load", () => this.#start(frame.contentWindow, url), { once: true });
      document.documentElement.append(frame);
    }

    #start(inside, url) {
      // The script calls these two functions of a worker.
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...scripts) => Promise.all(scripts.map((each) => load(inside, each)));
      load(inside, url).then(() => {
        this.#inside = inside;
        for (const data of this.#waiting.splice(0)) this.postMessage(data);
      });
    }

    postMessage(data) {
      if (this.#inside === null) this.#waiting.push(data);
      else this.#inside.dispatchEvent(new this.#inside.MessageEvent("message", { data }));
    }
  };

  function load(inside, url) {
    return new Promise((resolve, reject) => {
      const script = inside.document.createElement("script");
      script.src = url;
      script.addEventListener("load", resolve);
      script.addEventListener("error", () => reject(new Error(`cannot load ${url}`)));
      inside.document.head.append(script);
    });
  }
}
