"""A complete agent in ten lines: it replies to every request until it is stopped."""

import asyncio

import palaver


async def main() -> None:
    async with palaver.connect(tag="demo") as me:
        print(f"{me.name} is listening", flush=True)
        async for message in me.messages():
            await message.ack()
            if message.intent == "request":
                await message.reply(f"looked at it: {len(message.text)} characters, looks good", intent="ack")


if __name__ == "__main__":
    asyncio.run(main())
