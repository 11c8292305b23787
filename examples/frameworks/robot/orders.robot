*** Settings ***
Library           KafkaBroker.py
Suite Setup       Start Broker
Suite Teardown    Stop Broker

*** Test Cases ***
An Order Is Written
    Append Record        orders    a lamp
    Topic Should Hold    orders    a lamp
