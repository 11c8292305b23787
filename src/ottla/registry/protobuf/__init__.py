"""Protobuf: conversion between .proto text and file descriptors, and the rules of Confluent's registry."""
