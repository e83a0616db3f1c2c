"""A worker of the lane `work` in a process of its own: says that it is ready, waits for a word, counts as it goes."""

import asyncio
import sys

import onejob


async def main(url: str, concurrency: int) -> None:
    app = onejob.App()

    @app.job("nothing")
    async def nothing() -> None:
        pass

    async with onejob.open(url, sweep=False) as queue:
        worker = app.worker(queue, concurrency=concurrency)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        running = asyncio.create_task(worker.run())
        told = 0
        leaving = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        while not leaving.done():
            await asyncio.sleep(0.01)
            done = worker.counts().get("success", 0)
            if done != told:
                print(done - told, flush=True)
                told = done
        worker.stop()
        await running


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
