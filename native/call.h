/* The arguments of pal, read as far as the client itself must know them. They are passed on unchanged. */
#ifndef PAL_CALL_H
#define PAL_CALL_H

#include <stdbool.h>

struct call {
    int count, verb_at; /* verb_at is 0 when there is no verb */
    char **all;
    const char *home;
    bool has_home, is_version, is_help, is_foreground, is_json, is_repair, is_doctor;
    bool is_hook, is_up, is_down, is_mcp, is_monitor, is_rewake; /* a rewake is also a monitor */
    bool is_look;    /* the command only shows something: it starts no bus that was stopped or never existed */
    bool is_waiting; /* the command waits for something, by its arguments */
};

extern struct call call;

/* Read the arguments. `pal` alone at a terminal is `pal ui`. */
void read_arguments(int count, char **all);

/* Return whether a call of up or down has an argument that the client does not know. */
bool has_unknown_arguments(void);

#endif
