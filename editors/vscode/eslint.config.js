const js = require("@eslint/js");

const globals = {require: "readonly", module: "writable", exports: "writable"};
module.exports = [js.configs.recommended, {languageOptions: {sourceType: "commonjs", ecmaVersion: 2022, globals}}];
