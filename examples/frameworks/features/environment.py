"""behave: one broker for the run, empty again before each scenario."""

import ottla


def before_all(context):
    context.kafka = ottla.serve()
    context.kafka.start()


def before_scenario(context, scenario):
    context.kafka.reset()


def after_all(context):
    context.kafka.stop()
