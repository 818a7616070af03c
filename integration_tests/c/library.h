/* Opening a library and its functions by name, for the C programs. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Declares a pointer to the function of that name, with the type that its header gives it. */
#define FUNCTION(library, name) __typeof__(&name) p_##name = (__typeof__(&name))(size_t)find(library, #name)

static void* open_library(const char* path) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "cannot open %s: %s\n", path, dlerror());
        exit(2);
    }
    return library;
}

static void* find(void* library, const char* name) {
    void* symbol = dlsym(library, name);
    if (!symbol) {
        fprintf(stderr, "missing symbol: %s\n", dlerror());
        exit(2);
    }
    return symbol;
}

#endif
