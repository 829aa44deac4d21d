// Shows openapi.json in Swagger UI. Nothing is stored: a key that a reader enters is lost when the page closes.
const darkScheme = matchMedia("(prefers-color-scheme: dark)");
const applyColorScheme = () => document.documentElement.classList.toggle("dark-mode", darkScheme.matches);
darkScheme.addEventListener("change", applyColorScheme);
applyColorScheme();

SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  syntaxHighlight: { theme: "tomorrow-night" }, // the default has too little contrast
  validatorUrl: null,
});
