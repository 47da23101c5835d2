/* The options that pyxis adds to srun. What was asked for is in the task's environment; no container is run. */
#include <slurm/spank.h>
#include <string.h>

SPANK_PLUGIN(pyxis_options, 1)

static const char *names[] = {"image", "name", "mounts", "env"};
static const char *variables[] = {"PYXIS_IMAGE", "PYXIS_NAME", "PYXIS_MOUNTS", "PYXIS_ENV"};
static char *values[4];

static int take(int number, const char *value, int remote) {
    (void)remote;
    values[number] = strdup(value);
    return 0;
}

int slurm_spank_init(spank_t spank, int count, char **words) {
    (void)count, (void)words;
    static char option[4][32];
    for (int number = 0; number < 4; number++) {
        char *to = option[number];
        for (const char *from = "container-"; *from;) *to++ = *from++;
        for (const char *from = names[number]; *from;) *to++ = *from++;
        struct spank_option one = {option[number], "TEXT", "[pyxis] as the true one", 1, number, take};
        if (spank_option_register(spank, &one) != ESPANK_SUCCESS) return -1;
    }
    return 0;
}

int slurm_spank_task_init(spank_t spank, int count, char **words) {
    (void)count, (void)words;
    for (int number = 0; number < 4; number++)
        if (values[number]) spank_setenv(spank, variables[number], values[number], 1);
    return 0;
}
