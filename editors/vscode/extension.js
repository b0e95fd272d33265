// Starts `rlctl lsp` for YAML files and shell scripts; everything else is in the server.
const {workspace, window} = require("vscode");
const {LanguageClient} = require("vscode-languageclient/node");

let client;

exports.activate = async () => {
  const settings = workspace.getConfiguration("rlctl");
  const runner = settings.get("runner");
  const server = {command: settings.get("command"), args: ["lsp", ...(runner ? ["--runner", runner] : [])]};
  const documentSelector = ["yaml", "shellscript"].map((language) => ({scheme: "file", language}));
  client = new LanguageClient("rlctl", "rlctl", server, {documentSelector});
  try {
    await client.start();
  } catch {
    window.showErrorMessage(`rlctl: cannot start "${server.command}". Run: pip install "rlctl[lsp]", then set rlctl.command.`);
  }
};

exports.deactivate = () => client?.stop();
