// Plays a take while it is made. The server sends int16 samples at 24 kHz over a websocket and is told how many of them
// were played; an AudioWorklet plays them as they are. Whatever fails here, the take goes on and its file is offered.
(function () {
  var RATE = 24000;
  var PRE_BUFFER = 0.25; // seconds, before it begins and after it ran dry
  var UNHEARD_MS = 3000; // a browser that has not begun to play by then does not want to

  // Runs in the worklet's own scope, so it may use nothing from out here. `fill` is the pre-buffer in samples.
  function worklet() {
    registerProcessor("cosyui-live", class extends AudioWorkletProcessor {
      constructor(options) {
        super();
        var given = options.processorOptions;
        this.rate = given.rate;
        this.fill = given.fill;
        this.pieces = []; // Int16Arrays; `at` is the place in the first
        this.at = this.phase = 0;
        this.given = this.played = this.dry = this.told = 0;
        this.playing = this.begun = this.complete = this.stopped = false;
        this.port.onmessage = (event) => this.take(event.data);
      }

      take(message) {
        if (message.pcm) {
          var piece = new Int16Array(message.pcm);
          if (piece.length) this.pieces.push(piece);
          this.given += piece.length;
        }
        if (message.complete) this.complete = true;
        if (message.stop) this.stopped = true;
      }

      ahead() { return this.given - this.played; }

      // The sample to come, or the one after it, from -1 to 1.
      sample(next) {
        var first = this.pieces[0], at = this.at + next;
        if (at < first.length) return first[at] / 32768;
        return (this.pieces.length > 1 ? this.pieces[1][0] : first[first.length - 1]) / 32768;
      }

      // One output sample further: `phase` counts in parts of an input sample, so that nothing drifts.
      advance() {
        this.phase += this.rate;
        while (this.phase >= sampleRate && this.ahead()) {
          this.phase -= sampleRate;
          this.played++;
          if (++this.at === this.pieces[0].length) {
            this.pieces.shift();
            this.at = 0;
          }
        }
      }

      process(inputs, outputs) {
        var out = outputs[0][0], before = this.playing;
        if (this.stopped) return false;
        if (!this.playing && this.ahead() && (this.ahead() >= this.fill || this.complete)) {
          if (this.begun) this.dry++; // silence that more sound comes after: a gap was heard
          this.playing = this.begun = true;
        }
        for (var i = 0; i < out.length; i++) {
          if (this.playing && !this.ahead()) {
            this.playing = false;
            this.phase = 0;
          }
          if (this.playing) {
            var here = this.sample(0);
            out[i] = this.phase ? here + (this.sample(1) - here) * this.phase / sampleRate : here;
            this.advance();
          } else out[i] = 0;
        }
        this.told += out.length;
        var over = this.complete && !this.ahead();
        if (over || before !== this.playing || this.told > sampleRate / 10) {
          this.told = 0;
          this.port.postMessage({
            given: this.given, played: this.played, dry: this.dry, playing: this.playing, over: over
          });
        }
        return !over;
      }
    });
  }

  var context = null; // one for all takes of this page
  var loaded = null; // the promise of its worklet
  var take = null; // what is being heard
  var fresh = function (state) { return { state: state, given: 0, played: 0, dry: 0, samples: null, rate: 0 }; };

  var show = function () {
    var line = document.querySelector("#heard .heard"), stats = player.stats, state = stats.state;
    if (!line) return;
    if (state === "done") state = stats.dry > 1 ? "dry" : stats.dry ? "dry_once" : "whole";
    line.dataset.heard = state;
    line.querySelectorAll("[data-count]").forEach(function (count) { count.textContent = stats.dry; });
  };

  // Ends what is heard, at once; what comes of it later is not listened to any more.
  var end = function (state) {
    var old = take;
    take = null;
    if (old) {
      clearTimeout(old.timer);
      if (old.node) {
        old.node.port.onmessage = null;
        old.node.port.postMessage({ stop: true });
        old.node.disconnect();
      }
      if (old.socket) old.socket.close();
      // What was played is still on its way to the loudspeaker; what was stopped shall not be heard.
      if (state !== "done") context.suspend();
      else setTimeout(function () { if (!take) context.suspend(); }, 1000);
    }
    player.stats.state = state;
    show();
  };

  var refuse = function (reason) {
    console.info("cosyui: not played while it is made:", reason);
    end("file");
  };

  // Inside of a click, or browsers keep it silent.
  var prepare = function () {
    if (!window.WebSocket || !window.AudioWorkletNode || !window.AudioContext) throw new Error("not in this browser");
    if (!context || context.state === "closed") {
      try {
        context = new AudioContext({ sampleRate: RATE, latencyHint: "playback" });
      } catch (error) {
        context = new AudioContext(); // at its own rate; the worklet makes up for it
      }
      var url = URL.createObjectURL(new Blob(["(" + worklet + ")()"], { type: "text/javascript" }));
      loaded = context.audioWorklet.addModule(url);
      loaded.catch(function (error) {
        refuse(error);
        context = null; // the next take tries again
      });
    }
    context.resume().catch(function () {}); // one that does not begin is noticed later
  };

  var connect = function (mine, key) {
    var url = new URL("listen/" + key, location.href);
    url.protocol = url.protocol.replace("http", "ws");
    var socket = mine.socket = new WebSocket(url);
    var told = 0;
    socket.binaryType = "arraybuffer";
    socket.onmessage = function (event) {
      if (take !== mine) return;
      if (typeof event.data !== "string") {
        mine.timer = mine.timer || setTimeout(function () {
          if (take === mine && context.state !== "running") refuse("the browser does not begin");
        }, UNHEARD_MS);
        mine.node.port.postMessage({ pcm: event.data }, [event.data]);
        return;
      }
      var last = JSON.parse(event.data);
      mine.ended = true;
      player.stats.samples = last.samples;
      if (last.type === "done") mine.node.port.postMessage({ complete: true });
      else end("stopped");
    };
    socket.onclose = function () { if (take === mine && !mine.ended) refuse("the connection broke"); };
    mine.node.port.onmessage = function (event) {
      if (take !== mine) return;
      var stats = player.stats, now = event.data;
      stats.given = now.given;
      stats.played = now.played;
      stats.dry = now.dry;
      if (now.playing) stats.state = "playing";
      if (now.played > told && socket.readyState === WebSocket.OPEN) socket.send(String(told = now.played));
      if (now.over) end("done");
      else show();
    };
  };

  var player = {
    stats: fresh("idle"),
    worklet: worklet,
    // null where nobody has said so yet
    wanted: function () { return { on: true, off: false }[localStorage.getItem("cosyui_live")] ?? null; },
    want: function (on) {
      localStorage.setItem("cosyui_live", on ? "on" : "off");
      if (!on) end("stopped");
      return on;
    },
    // Generate was pressed: the last input says whether the take is to be heard, and leaves so only if it can be.
    begin: function (inputs) {
      end("idle");
      player.stats = fresh("idle");
      if (inputs[inputs.length - 1]) {
        try {
          prepare();
        } catch (error) {
          refuse(error.message);
          return inputs.slice(0, -1).concat(false);
        }
      }
      return inputs;
    },
    // The server has taken it in: `key` is what its sound is asked for with.
    listen: function (key) {
      if (!key || !context || !loaded) return key;
      end("waiting");
      var mine = take = {};
      loaded.then(function () {
        if (take !== mine) return;
        mine.node = new AudioWorkletNode(context, "cosyui-live", {
          numberOfInputs: 0, outputChannelCount: [1], processorOptions: { rate: RATE, fill: RATE * PRE_BUFFER }
        });
        mine.node.onprocessorerror = function () { if (take === mine) refuse("the worklet failed"); };
        mine.node.connect(context.destination);
        player.stats.rate = context.sampleRate;
        connect(mine, key);
        context.resume().catch(function () {}); // `end` has put it to sleep
      }).catch(function (error) { if (take === mine) refuse(error); });
      return key;
    },
    stop: function () {
      end("stopped");
      return [];
    }
  };
  cosyui.player = player;

  // Two voices at once are none: who plays the file has heard enough of this.
  document.addEventListener("click", function (event) {
    if (take && event.target.closest("#take") && !event.target.closest("a")) end("stopped");
  }, true);
})();
