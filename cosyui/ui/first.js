// Runs before Gradio: settles language and theme, so that labels, server texts and style sheet agree from the start.
(function () {
  var chosen = (document.cookie.match(/(?:^|; )cosyui_lang=(en|zh)/) || [])[1];
  var native = navigator.language || "en";
  var traditional = !chosen && /^zh-(tw|hk|mo|hant)/i.test(native);
  var chinese = chosen ? chosen === "zh" : /^zh/i.test(native);
  var locale = chinese ? (traditional ? "zh-TW" : "zh-CN") : "en";
  Object.defineProperty(navigator, "language", { configurable: true, get: function () { return locale; } });
  document.documentElement.lang = locale;
  document.documentElement.classList.toggle("insecure", !window.isSecureContext); // no microphone here

  var url = new URL(location.href);
  var theme = localStorage.getItem("cosyui_theme");
  if (theme && !url.searchParams.has("__theme")) {
    url.searchParams.set("__theme", theme);
    history.replaceState(history.state, "", url);
  }

  // What was typed survives a reload: by the language switch, or by Gradio when the server was restarted.
  var fields = ["text", "transcript", "instruction", "voice-transcript", "voice-name", "voice-consent", "keep-name", "keep-consent"];
  var box = function (name) { return document.querySelector("#" + name + " :is(textarea, input)"); };
  window.addEventListener("pagehide", function () {
    fields.forEach(function (name) {
      if (box(name)) sessionStorage.setItem("cosyui_" + name, box(name).value);
    });
  });
  var pending = fields.filter(function (name) { return sessionStorage.getItem("cosyui_" + name); });
  if (pending.length) {
    new MutationObserver(function (_, observer) {
      pending = pending.filter(function (name) {
        if (!box(name)) return true;
        if (!box(name).value) {
          box(name).value = sessionStorage.getItem("cosyui_" + name);
          box(name).dispatchEvent(new Event("input", { bubbles: true }));
        }
        return false;
      });
      if (!pending.length) observer.disconnect();
    }).observe(document, { childList: true, subtree: true });
  }

  // Browsers call a recording in WebM or MP4 a video, and Gradio would refuse it: what a clip is, the service finds out.
  // Files of a voice get plain names: their owner's are nobody's business.
  var UPLOADS = "#clip, #voice-clip, #voice-file";
  var inputOf = function (element) {
    var field = element && element.closest ? element.closest(UPLOADS) : null;
    return field && field.querySelector("input[type=file]");
  };
  var asSound = function (file) {
    return /^audio\//.test(file.type) ? file : new File([file], file.name, { type: "audio/x-clip" });
  };
  var nameless = function (file) {
    return new File([file], "voice" + (file.name.match(/\.(zip|wav|json)$/i) || [""])[0].toLowerCase(), { type: file.type });
  };
  var ready = function (input, files) {
    var list = new DataTransfer(), change = input.closest("#voice-file") ? nameless : asSound;
    Array.from(files).forEach(function (file) { list.items.add(change(file)); });
    return list.files;
  };
  document.addEventListener("click", function (event) {
    var input = inputOf(event.target);
    if (input) input.accept = input.closest("#voice-file") ? ".zip,.wav,.json" : "audio/*,video/*,.amr,.opus,.wma,.caf";
  }, true);
  document.addEventListener("change", function (event) {
    if (inputOf(event.target) === event.target) event.target.files = ready(event.target, event.target.files);
  }, true);
  document.addEventListener("drop", function (event) {
    var input = inputOf(event.target);
    if (!input || !event.dataTransfer.files.length) return;
    event.preventDefault();
    event.stopPropagation();
    event.target.dispatchEvent(new DragEvent("dragleave", { bubbles: true }));
    input.files = event.dataTransfer.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  }, true);

  // Buttons in what the server draws anew every two seconds: a press counts when it ends on what it began on, drawn anew
  // meanwhile or not, and the keyboard finds its button again.
  var pickOf = function (element) { return element && element.closest ? element.closest("[data-pick]") : null; };
  var nameOf = function (button) { return button ? button.dataset.pick + " " + button.dataset.value : ""; };
  var pressed = "", focused = "";
  var pick = function (button) {
    cosyui.picked = button.dataset.value;
    document.getElementById("pick-" + button.dataset.pick).click();
  };
  document.addEventListener("pointerdown", function (event) {
    pressed = event.button === 0 ? nameOf(pickOf(event.target)) : "";
    focused = "";
  });
  document.addEventListener("pointerup", function (event) {
    var button = pickOf(document.elementFromPoint(event.clientX, event.clientY));
    if (pressed && nameOf(button) === pressed) pick(button);
    pressed = "";
  });
  document.addEventListener("click", function (event) {
    if (!event.detail && pickOf(event.target)) pick(pickOf(event.target));
  });
  document.addEventListener("focusin", function (event) { focused = pressed ? "" : nameOf(pickOf(event.target)); });
  new MutationObserver(function () {
    if (!focused || document.activeElement !== document.body) return;
    var again = Array.from(document.querySelectorAll("[data-pick]")).find(function (button) {
      return nameOf(button) === focused;
    });
    if (again) again.focus({ preventScroll: true });
  }).observe(document, { childList: true, subtree: true });

  // Nobody looks at a tab of the browser that is hidden: the ops tab need not be drawn then.
  document.addEventListener("visibilitychange", function () {
    var panel = document.getElementById("ops-panel");
    if (panel && panel.offsetParent) document.getElementById(document.hidden ? "ops-sleep" : "ops-wake").click();
  });

  window.cosyui = {
    picked: "",
    show: function (name) {
      var card = document.getElementById(name);
      if (card) card.scrollIntoView({ block: "nearest", behavior: "smooth" });
    },
    download: function (file) {
      if (!file) return;
      var link = document.createElement("a");
      link.href = file.url;
      link.download = file.orig_name;
      link.click();
    },
    switchLanguage: function () {
      document.cookie = "cosyui_lang=" + (chinese ? "en" : "zh") + "; path=/; max-age=31536000; samesite=lax";
      location.reload();
    },
    switchTheme: function () {
      var next = document.body.classList.contains("dark") ? "light" : "dark";
      localStorage.setItem("cosyui_theme", next);
      document.body.classList.toggle("dark", next === "dark");
      var here = new URL(location.href);
      here.searchParams.set("__theme", next);
      history.replaceState(history.state, "", here);
    },
    // How much is typed, and what a long text becomes; `about` has the limits, the rates of speech and the sentence.
    counter: function (text, about) {
      text = (text || "").trim();
      var count = Array.from(text).length, over = count > about.longest;
      var html = '<span class="counter' + (over ? " over" : "") + '">' + count + " / " +
        (over ? about.longest : about.limit) + "</span>";
      if (count <= about.limit || over) return html;
      var characters = (text.match(/[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]/g) || []).length;
      var words = (text.match(/[A-Za-z\u00c0-\u04ff]+|\d/g) || []).length;
      var seconds = characters / about.characters + words / about.words;
      var sentence = about.sentence
        .replace(/\{segments\}/g, Math.max(2, Math.ceil(seconds / about.segment)))
        .replace(/\{minutes\}/g, Math.max(1, Math.round(seconds / 60)));
      return html + '<span class="long-text">' + sentence + "</span>";
    },
    dice: function () { return String(Math.floor(Math.random() * 2147483648)); }
  };
})();
