process TARTAN_GENOMES {
    tag "$meta.id"
    label 'process_medium'

    conda "${moduleDir}/environment.yml"

    input:
    tuple val(meta), path(genomes, stageAs: 'genomes/*')

    output:
    tuple val(meta), path("${prefix}.tartan"), emit: run
    tuple val(meta), path("${prefix}.tsv")   , emit: species
    tuple val(meta), path("${prefix}.nwk")   , emit: tree
    tuple val(meta), path("${prefix}.html")  , emit: report
    tuple val("${task.process}"), val('tartan'), eval('tartan --version | sed "s/tartan //"'), emit: versions_tartan, topic: versions

    when:
    task.ext.when == null || task.ext.when

    script:
    def args  = task.ext.args ?: ''
    def args2 = task.ext.args2 ?: ''
    def args3 = task.ext.args3 ?: ''
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    find genomes -mindepth 1 | sort > genomes.txt

    tartan run genomes \\
        @genomes.txt \\
        -o ${prefix}.tartan \\
        --workers ${task.cpus} \\
        --quiet \\
        ${args}

    tartan cluster \\
        ${prefix}.tartan \\
        -o ${prefix}.tsv \\
        --quiet \\
        ${args2}

    tartan tree \\
        ${prefix}.tartan \\
        -o ${prefix}.nwk \\
        --quiet \\
        ${args3}

    tartan report \\
        ${prefix}.tartan \\
        -o ${prefix}.html \\
        --quiet
    """

    stub:
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    mkdir ${prefix}.tartan
    touch ${prefix}.tsv
    touch ${prefix}.nwk
    touch ${prefix}.html
    """
}
