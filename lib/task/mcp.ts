/**
 * Rules of `[[environment.mcp_servers]]` that one key alone cannot tell (task-format §2.5; headers by Harbor 0.25.0).
 */

export interface McpFault {
  /** Key below the server's table; absent: the table as a whole. */
  key?: string;
  message: string;
  hint: string;
}

interface Server {
  name: string;
  transport?: string;
  url?: string;
  command?: string;
  headers?: Record<string, string>;
}

/** What is wrong with one server whose keys have the right types. */
export function mcpFaults(server: Server): McpFault[] {
  const stdio = server.transport === "stdio";
  const faults: McpFault[] = [];
  if (!(stdio ? server.command : server.url)) {
    faults.push({
      key: stdio ? "command" : "url",
      message: `MCP server '${server.name}': stdio needs \`command\`, other transports need \`url\``,
      hint: stdio ? 'add command = "…"' : 'add url = "…", or set transport = "stdio"',
    });
  }
  const headers = Object.entries(server.headers ?? {});
  if (stdio && headers.length > 0) {
    faults.push({
      key: "headers",
      message: `MCP server '${server.name}': \`headers\` are for HTTP transports, not stdio`,
      hint: "take headers out, or use sse or streamable-http",
    });
    return faults;
  }
  for (const [name, value] of headers) {
    const fault = headerFault(name, value);
    if (fault !== undefined) {
      faults.push({
        key: "headers",
        message: `MCP server '${server.name}': header ${JSON.stringify(name)} ${fault}`,
        hint: 'a credential comes from the host: Authorization = "Bearer ${TOKEN}"',
      });
    }
  }
  return faults;
}

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const VARIABLE = /\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}/g;
const SCHEME = /^[A-Za-z]+ +/;

function headerFault(name: string, value: string): string | undefined {
  if (!TOKEN.test(name)) return "is not an HTTP header name";
  if (/[\r\n]/.test(value)) return "must not hold a line break";
  const rest = value.replace(VARIABLE, "");
  if (rest.includes("${")) return "holds a ${ that is neither ${NAME} nor ${NAME:-default}";
  const variables = [...value.matchAll(VARIABLE)].map((match) => ({
    name: match[1]!,
    fallback: match[2]?.slice(2) ?? "",
  }));
  if (variables.some((one) => one.fallback !== "" && isCredential(one.name))) {
    return "gives a default for a credential; write ${NAME} without one";
  }
  if (!isCredential(name) || value.trim() === "") return undefined;
  const literal = rest.trim() === "" ? "" : value.trim().replace(SCHEME, "").replace(VARIABLE, "");
  return variables.length === 0 || variables.some((one) => one.fallback !== "") || !/^[\s:]*$/.test(literal)
    ? "looks like a credential and must be written as ${NAME}, such as `Bearer ${TOKEN}`"
    : undefined;
}

const SECRET = /KEY|SECRET|TOKEN(?!S)|PASSWORD|CREDENTIAL|AUTH/i;

const isCredential = (name: string): boolean => SECRET.test(name) || /^(set-)?cookie$/i.test(name);
