// Runs before Gradio: settles language and theme, so that labels, server texts and style sheet agree from the start.
(function () {
  var chosen = (document.cookie.match(/(?:^|; )cosyui_lang=(en|zh)/) || [])[1];
  var native = navigator.language || "en";
  var traditional = !chosen && /^zh-(tw|hk|mo|hant)/i.test(native);
  var chinese = chosen ? chosen === "zh" : /^zh/i.test(native);
  var locale = chinese ? (traditional ? "zh-TW" : "zh-CN") : "en";
  Object.defineProperty(navigator, "language", { configurable: true, get: function () { return locale; } });
  document.documentElement.lang = locale;

  var url = new URL(location.href);
  var theme = localStorage.getItem("cosyui_theme");
  if (theme && !url.searchParams.has("__theme")) {
    url.searchParams.set("__theme", theme);
    history.replaceState(history.state, "", url);
  }

  // What was typed survives a reload: by the language switch, or by Gradio when the server was restarted.
  var fields = ["text", "transcript", "instruction"];
  var box = function (name) { return document.querySelector("#" + name + " textarea"); };
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

  window.cosyui = {
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
    counter: function (text, limit) {
      var count = Array.from((text || "").trim()).length;
      return '<span class="counter' + (count > limit ? " over" : "") + '">' + count + " / " + limit + "</span>";
    },
    dice: function () { return String(Math.floor(Math.random() * 2147483648)); }
  };
})();
