"""Starts TensorZero's gateway out of its package, and relays a stated port to the free one that it takes."""

import asyncio
import sys
import urllib.parse

import openai
import tensorzero


async def pipe(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()


async def main():
    config, port = sys.argv[1:]
    client = openai.AsyncOpenAI(api_key="none")
    await tensorzero.patch_openai_client(client, config_file=config)
    target = urllib.parse.urlparse(str(client.base_url))

    async def relay(reader, writer):
        to_reader, to_writer = await asyncio.open_connection(target.hostname, target.port)
        done, pending = await asyncio.wait(
            [asyncio.create_task(pipe(reader, to_writer)), asyncio.create_task(pipe(to_reader, writer))],
            return_when=asyncio.FIRST_COMPLETED,
        )
        # A caller that left, or a gateway that ended the connection, ends both.
        for task in pending:
            task.cancel()
        writer.close()
        to_writer.close()

    server = await asyncio.start_server(relay, "127.0.0.1", int(port))
    await server.serve_forever()


asyncio.run(main())
