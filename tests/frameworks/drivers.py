"""Runs the snippets of docs/frameworks.md with another address and another route, and what the scenarios need beyond them.

A snippet builds something in the lines before its question, and asks it from there on: the whole of it is run where a
plain call is enough; where more is wanted (a stream, tools) what it built is used.
"""

import asyncio
import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
HOME = pathlib.Path(os.environ.get("FRAMEWORKS_HOME", ROOT / "target" / "frameworks"))
QUESTION = "Why is the sky blue?"
WEATHER = "What is the weather in Riga?"
ADDRESS = "http://127.0.0.1:8080"
PATIENCE = 240
# The heading of each on the page, and how it is run.
FRAMEWORKS = {
    "openai": ("OpenAI SDK", "python"),
    "anthropic": ("Anthropic SDK", "python"),
    "langchain": ("LangChain", "python"),
    "langgraph": ("LangGraph", "python"),
    "llamaindex": ("LlamaIndex", "python"),
    "pydantic": ("Pydantic AI", "python"),
    "agents": ("OpenAI Agents SDK", "python"),
    "ai": ("AI SDK", "js"),
    "eino": ("Eino", "go"),
    "spring": ("Spring AI", "java"),
}


def snippet(framework):
    return fenced(*FRAMEWORKS[framework])


def fenced(heading, fence):
    """The block of this language below this heading."""
    page = (ROOT / "docs" / "frameworks.md").read_text()
    section = page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.search(rf"^```{fence}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[1]


def built(block):
    """The lines before the question."""
    lines = block.splitlines(keepends=True)
    return "".join(lines[: next(number for number, line in enumerate(lines) if QUESTION in line)])


def run(framework, front, scenarios):
    return RUNNERS[FRAMEWORKS[framework][1]](framework, front, scenarios)


def of_python(framework, front, scenarios):
    outcomes = {}
    for scenario in scenarios:
        block = snippet(framework).replace(ADDRESS, front).replace('"default"', f'"{scenario}-{framework}"')
        try:
            outcomes[scenario] = {"text": python_scenario(framework, scenario, block)}
        except Exception as error:  # noqa: BLE001  whatever a framework raises is its error
            outcomes[scenario] = {"error": f"{type(error).__name__}: {error}"}
    return outcomes


def python_scenario(framework, scenario, block):
    names = {}
    if scenario in ("stream", "cut"):
        exec(built(block), names)  # noqa: S102
        return STREAMS[framework](names)
    if scenario == "tools":
        exec(built(block), names)  # noqa: S102
        return TOOLS[framework](names)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(block, names)  # noqa: S102
    return printed.getvalue().strip()


def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"Sunny in {city}."


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def openai_stream(names):
    with names["client"].responses.stream(model=names["MODEL"], input=QUESTION) as stream:
        return "".join(event.delta for event in stream if event.type == "response.output_text.delta")


def openai_tools(names):
    client, model = names["client"], names["MODEL"]
    tools = [{"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}]
    answer = client.responses.create(model=model, input=WEATHER, tools=tools)
    call = next(item for item in answer.output if item.type == "function_call")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": get_weather(**json.loads(call.arguments))}
    return client.responses.create(model=model, input=[result], tools=tools, previous_response_id=answer.id).output_text


def anthropic_stream(names):
    message = [{"role": "user", "content": QUESTION}]
    with names["client"].messages.stream(model=names["MODEL"], max_tokens=99, messages=message) as stream:
        return "".join(stream.text_stream)


def anthropic_tools(names):
    tools = [{"name": "get_weather", "input_schema": SCHEMA}]
    messages = [{"role": "user", "content": WEATHER}]
    while True:
        answer = names["client"].messages.create(model=names["MODEL"], max_tokens=99, messages=messages, tools=tools)
        if answer.stop_reason != "tool_use":
            return answer.content[0].text
        messages.append({"role": "assistant", "content": answer.content})
        calls = [block for block in answer.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": get_weather(**call.input)} for call in calls]
        messages.append({"role": "user", "content": results})


def langchain_stream(names):
    return "".join(chunk.text for chunk in names["model"].stream(QUESTION))


def langchain_tools(names):
    from langchain_core.messages import HumanMessage, ToolMessage

    model, messages = names["model"].bind_tools([get_weather]), [HumanMessage(WEATHER)]
    while True:
        answer = model.invoke(messages)
        messages.append(answer)
        if not answer.tool_calls:
            return answer.text
        messages.extend(ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"]) for call in answer.tool_calls)


def langgraph_stream(names):
    steps = names["agent"].stream({"messages": QUESTION}, stream_mode="messages")
    return "".join(chunk.text for chunk, _ in steps)


def langgraph_tools(names):
    return names["agent"].invoke({"messages": WEATHER})["messages"][-1].text


def llamaindex_stream(names):
    from llama_index.core.llms import ChatMessage

    return "".join(piece.delta or "" for piece in names["llm"].stream_chat([ChatMessage(QUESTION)]))


def llamaindex_tools(names):
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool

    llm, tool = names["llm"], FunctionTool.from_defaults(get_weather)
    messages = [ChatMessage(WEATHER)]
    while True:
        answer = llm.chat_with_tools([tool], chat_history=messages)
        calls = llm.get_tool_calls_from_response(answer, error_on_no_tool_call=False)
        if not calls:
            return answer.message.content
        messages.append(answer.message)
        for call in calls:
            more = {"tool_call_id": call.tool_id}
            messages.append(ChatMessage(get_weather(**call.tool_kwargs), role="tool", additional_kwargs=more))


def pydantic_stream(names):
    async def read():
        async with names["agent"].run_stream(QUESTION) as stream:
            return "".join([piece async for piece in stream.stream_text(delta=True)])

    return asyncio.run(read())


def pydantic_tools(names):
    names["agent"].tool_plain(get_weather)
    return names["agent"].run_sync(WEATHER).output


def agents_stream(names):
    from agents import Runner

    async def read():
        events = Runner.run_streamed(names["agent"], QUESTION).stream_events()
        data = [event.data async for event in events if event.type == "raw_response_event"]
        return "".join(each.delta for each in data if each.type == "response.output_text.delta")

    return asyncio.run(read())


def agents_tools(names):
    from agents import Runner, function_tool

    agent = names["agent"].clone(tools=[function_tool(get_weather)])
    return Runner.run_sync(agent, WEATHER).final_output


STREAMS = {name: globals()[f"{name}_stream"] for name, (_, kind) in FRAMEWORKS.items() if kind == "python"}
TOOLS = {name: globals()[f"{name}_tools"] for name, (_, kind) in FRAMEWORKS.items() if kind == "python"}

JS_TAILS = {
    "stream": "let all = ''; for await (const piece of streamText({ model, maxRetries: 0, prompt: QUESTION }).textStream)"
    " all += piece; console.log(all);",
    "tools": "const get_weather = tool({ inputSchema: z.object({ city: z.string() }),"
    " execute: async ({ city }) => `Sunny in ${city}.` });"
    " const end = await generateText({ model, maxRetries: 0, tools: { get_weather }, stopWhen: stepCountIs(4),"
    " prompt: 'What is the weather in Riga?' }); console.log(end.text);",
}
JS_TAILS["cut"] = JS_TAILS["stream"]


def of_js(framework, front, scenarios):
    """One module for each scenario, run one after the other."""
    outcomes = {}
    for scenario in scenarios:
        block = snippet(framework).replace(ADDRESS, front).replace("'default'", f"'{scenario}-{framework}'")
        if scenario in JS_TAILS:
            more = "import { stepCountIs, streamText, tool } from 'ai';\nimport { z } from 'zod';\n"
            block = f"{more}const QUESTION = '{QUESTION}';\n{built(block)}{JS_TAILS[scenario]}\n"
        path = HOME / "node" / f"{framework}-{scenario}.mjs"
        path.write_text(block)
        outcomes[scenario] = of_process(["node", str(path)])
    return outcomes


def of_process(command):
    ran = subprocess.run(command, text=True, capture_output=True, timeout=PATIENCE)
    if ran.returncode:
        return {"error": (ran.stderr or ran.stdout)[-2000:]}
    return {"text": ran.stdout.strip()}


def of_program(framework, front, scenarios, command):
    """A program that prints what came of each scenario, one JSON object a line."""
    ran = subprocess.run([*command, front, *scenarios], text=True, capture_output=True, timeout=PATIENCE)
    lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == len(scenarios), f"{framework}: {ran.stdout}{ran.stderr}"
    return {line.pop("scenario"): line for line in lines}


def of_go(framework, front, scenarios):
    folder = HOME / "go"
    folder.mkdir(parents=True, exist_ok=True)
    source = ROOT / "tests" / "frameworks" / "go"
    for name in ("go.mod", "go.sum"):
        (folder / name).write_text((source / name).read_text())
    block = snippet(framework).replace(f'"{ADDRESS}/v1"', 'front + "/v1"').replace('"default"', "route")
    program = (source / "main.go.in").read_text()
    (folder / "main.go").write_text(program.replace("// BUILD", built(block)).replace("// ASK", block))
    subprocess.run(["go", "build", "-o", "frameworks", "."], cwd=folder, check=True)
    return of_program(framework, front, scenarios, [str(folder / "frameworks")])


def of_java(framework, front, scenarios):
    folder = HOME / "java"
    source = ROOT / "tests" / "frameworks" / "java"
    block = snippet(framework).replace(f'"{ADDRESS}"', "front").replace('"default"', "route")
    program = (source / "Frameworks.java.in").read_text()
    path = folder / "Frameworks.java"
    path.write_text(program.replace("// BUILD", built(block)).replace("// ASK", block))
    libraries = f"{folder}/lib/*"
    subprocess.run(["javac", "-parameters", "-cp", libraries, "-d", str(folder), str(path)], check=True)
    command = ["java", "-cp", f"{folder}:{libraries}", "Frameworks"]
    return of_program(framework, front, scenarios, command)


RUNNERS = {"python": of_python, "js": of_js, "go": of_go, "java": of_java}

if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], sys.argv[2], sys.argv[3:]), indent=1))
