"""The main job: a whole fleet on one machine, `python -m deploy local`.

job.py wires the parts: fleet.py starts engines and workers as processes (process.py keeps each of them running),
prompts.py reads the data set, consumer.py is the trainer, live.py what is shown meanwhile, summary.py what it came to.
"""
