/* cmd_data.c -- `polar data`: the family of commands about folders of pictures. Each has a file of its own,
 * data_<part>.c. */
#include "data_work.h"

const cli_command *const cli_data_parts[] = {&cli_data_pack, &cli_data_stat, &cli_data_subset,
                                             &cli_data_synth, NULL};

const cli_command cli_cmd_data = {
    .name = "data",
    .summary = "folders of pictures: pack, look at, choose classes, make a try-out set",
    .usage = "pack|stat|subset|synth ...",
    .about = "A data set is a folder with train/ and val/ (or test/) and one sub-folder per class in each, "
             "as torchvision's\n"
             "ImageFolder wants it. Pictures are JPEG or PNG by their content, whatever their names say.\n",
    .examples = "  polar data synth /tmp/textures --classes 10\n"
                "  polar data stat /tmp/textures\n"
                "  polar data pack /tmp/textures /tmp/textures.pack --size 64\n",
};
