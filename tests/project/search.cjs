// Ask the search of the built site: the script that its pages run in a worker, on its own index.
//
//   node search.cjs SITE QUESTION ...
//
// Prints the locations that each question finds, best first, as JSON.

const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [site, ...questions] = process.argv.slice(2);
const workers = path.join(site, "assets/javascripts/workers");
const [script] = fs.readdirSync(workers).filter((name) => /^search.*\.js$/.test(name));
const index = JSON.parse(fs.readFileSync(path.join(site, "search/search_index.json"), "utf8"));

let listener, answered;
const worker = {
  addEventListener: (type, listen) => (listener = listen),
  postMessage: (message) => answered(message),
  console,
};
worker.self = worker;
vm.runInNewContext(fs.readFileSync(path.join(workers, script), "utf8"), worker);

const SETUP = 0, QUERY = 2; // kinds of messages to the worker
const send = (type, data) =>
  new Promise((resolve) => {
    answered = resolve;
    listener({ data: { type, data } });
  });

(async () => {
  await send(SETUP, { ...index, options: {} });
  const found = {};
  for (const question of questions) {
    const { data } = await send(QUERY, question);
    found[question] = data.items.map(([first]) => first.location.split("#")[0]);
  }
  console.log(JSON.stringify(found));
})();
