package io.github.ottla;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** As much of JSON as the control endpoint needs, so that this library needs no other. */
final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    static Object parse(String text) {
        return new Json(text).value();
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> object(Object value) {
        return (Map<String, Object>) value;
    }

    private Object value() {
        char next = peek();
        if (next == '{') return members();
        if (next == '[') return items();
        if (next == '"') return string();
        int start = at;
        while (at < text.length() && ",]} \n\r\t".indexOf(text.charAt(at)) < 0) at++;
        String word = text.substring(start, at);
        return switch (word) {
            case "null" -> null;
            case "true" -> Boolean.TRUE;
            case "false" -> Boolean.FALSE;
            default -> word.matches("-?\\d+") ? (Object) Long.valueOf(word) : Double.valueOf(word);
        };
    }

    private Map<String, Object> members() {
        Map<String, Object> found = new LinkedHashMap<>();
        at++;
        while (peek() != '}') {
            String name = string();
            peek();
            at++;
            found.put(name, value());
            if (peek() == ',') at++;
        }
        at++;
        return found;
    }

    private List<Object> items() {
        List<Object> found = new ArrayList<>();
        at++;
        while (peek() != ']') {
            found.add(value());
            if (peek() == ',') at++;
        }
        at++;
        return found;
    }

    private String string() {
        peek();
        StringBuilder found = new StringBuilder();
        for (at++; text.charAt(at) != '"'; at++) {
            char next = text.charAt(at);
            if (next == '\\') {
                next = text.charAt(++at);
                int plain = "nrtbf".indexOf(next);
                if (plain >= 0) {
                    next = "\n\r\t\b\f".charAt(plain);
                } else if (next == 'u') {
                    next = (char) Integer.parseInt(text.substring(at + 1, at + 5), 16);
                    at += 4;
                }
            }
            found.append(next);
        }
        at++;
        return found.toString();
    }

    private char peek() {
        while (Character.isWhitespace(text.charAt(at))) at++;
        return text.charAt(at);
    }

    static String write(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) return String.valueOf(value);
        StringBuilder found = new StringBuilder();
        if (value instanceof Map<?, ?> map) {
            map.forEach((name, item) -> found.append(found.isEmpty() ? "{" : ",").append(write(name)).append(':').append(write(item)));
            return found.isEmpty() ? "{}" : found.append('}').toString();
        }
        if (value instanceof Iterable<?> items) {
            items.forEach(item -> found.append(found.isEmpty() ? "[" : ",").append(write(item)));
            return found.isEmpty() ? "[]" : found.append(']').toString();
        }
        found.append('"');
        for (char next : value.toString().toCharArray()) {
            if (next == '"' || next == '\\') found.append('\\').append(next);
            else if (next < ' ') found.append(String.format("\\u%04x", (int) next));
            else found.append(next);
        }
        return found.append('"').toString();
    }
}
